"""The source archives of the functions: their content, and the start of each function from its
archive alone.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grimp
import pytest

from infra import stage
from tests.infra import iam_table
from tests.support.jobs import a_spec
from tests.support.serving import serving
from trainmaster.console.iap_sign_in import ASSERTION
from trainmaster.messaging import topics
from trainmaster.packaging.agent_archive import agent_archive, agent_object
from trainmaster_emulators.checkout import ROOT
from trainmaster_emulators.process import loopback
from trainmaster_emulators.services import iam
from trainmaster_emulators.services.iap_issuer import IapIssuer
from trainmaster_emulators.services.pubsub import PubSub
from trainmaster_emulators.services.storage import create_bucket

HEAVY = pytest.mark.heavy(
    fact="each function starts from its archive in its own environment",
    quick="the content of each archive in the same module, `unit/functions`",
)

PROVISION = "provision"
SECRET = "a" * 32
OWNER, VIEWER = (iam.access_token(account, SECRET) for account in (iam.OWNER, iam.VIEWER))
CLIENTS = ("google.cloud.compute_v1", "google.cloud.tpu_v2", "google.cloud.storage")


def names(archive: Path) -> set[str]:
    with zipfile.ZipFile(archive) as file:
        return set(file.namelist())


def test_every_function_in_infra_has_an_archive(archives: dict[str, Path]) -> None:
    assert {*iam_table.local_values()["functions"], "console"} == set(archives)


def test_archives_of_the_same_sources_have_the_same_bytes(
    archives: dict[str, Path], tmp_path: Path
) -> None:
    again = {name: path.read_bytes() for name, path in stage.stage(tmp_path).items()}
    assert again == {name: path.read_bytes() for name, path in archives.items()}


def test_archive_contains_only_what_its_function_imports(archives: dict[str, Path]) -> None:
    unused = ("tests/", "trainmaster_emulators/", "trainmaster/cli/", "trainmaster/simulator/")
    scripts = {"trainmaster/agent/startup.sh", "trainmaster/agent/shutdown.sh"}
    for function in stage.FUNCTIONS:
        content = names(archives[function])
        assert {"main.py", "requirements.txt", f"functions/{function}.py"} <= content
        assert [name for name in content if name.startswith(unused)] == [], function
        others = {f"functions/{name}.py" for name in stage.FUNCTIONS if name != function}
        assert not content & others, function
        agent = {name for name in content if name.startswith("trainmaster/agent/")}
        # Checks of packages, and remedies of the console, name a framework's distributions.
        if function in {*ACCEPT_JOBS, "console"}:
            agent -= {
                "trainmaster/agent/__init__.py",
                "trainmaster/agent/setup/__init__.py",
                "trainmaster/agent/setup/framework_builds.py",
            }
        assert agent == (scripts if function == PROVISION else set()), function
        # The console has templates, style sheets and scripts; the API converts manifests.
        kib_max = {"console": 780, "api": 660}.get(function, 610)
        assert archives[function].stat().st_size < kib_max * 1024, function


def test_functions_except_provision_import_no_fleet_adapter() -> None:
    graph = grimp.build_graph(
        "functions",
        "trainmaster",
        cache_dir=None,
        include_external_packages=True,
        exclude_type_checking_imports=True,
    )
    for function in set(stage.FUNCTIONS) - {PROVISION}:
        modules = {f"functions.{function}", *graph.find_upstream_modules(f"functions.{function}")}
        adapters = {name for name in modules if name.startswith("trainmaster.gcp.")}
        assert [
            name for name in adapters if "compute_fleet" in name or "tpu_fleet" in name
        ] == [], function
        # The console reads the price list.
        assert ("trainmaster.gcp.storage_objects" in adapters) is (
            function in {*ACCEPT_JOBS, "console"}
        ), function


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder for virtual environments, one for each requirements file."""
    return tmp_path_factory.mktemp("venvs")


def python_for(function: str, folder: Path) -> Path:
    requirements = f"{stage.REQUIREMENTS.get(function, 'functions')}.txt"
    environment = folder / requirements.removesuffix(".txt")
    python = environment / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        pip = [
            str(python),
            "-m",
            "pip",
            "--disable-pip-version-check",
            "--quiet",
            "install",
            "--require-hashes",
        ]
        subprocess.run([*pip, "-r", str(ROOT / "requirements" / requirements)], check=True)
    return python


@contextmanager
def running(python: Path, folder: Path, function: str, variables: dict[str, str]) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        str(python),
        "-m",
        "functions_framework",
        "--target",
        function,
        "--source",
        "main.py",
    ]
    process = subprocess.Popen(
        [*command, "--port", str(port), "--host", "127.0.0.1"],
        cwd=folder,
        env={**variables, "PATH": os.environ["PATH"]},
    )
    try:
        yield port
    finally:
        process.terminate()
        process.wait(30)


def push(port: int, data: object, **attributes: str) -> int:
    encoded = base64.b64encode(json.dumps(data).encode()).decode()
    message = {"data": encoded, "attributes": attributes, "messageId": "1"}
    status, _ = call(port, "POST", "/", {"message": message, "subscription": "s"})
    return status


def call(
    port: int, method: str, path: str, body: object = None, token: str = ""
) -> tuple[int, dict[str, Any]]:
    """Call the function as soon as it listens; return the status and the JSON answer."""
    headers = {"Content-Type": "application/json"}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", data, headers, method=method)
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status), json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            return int(error.code), json.loads(error.read() or b"{}")
        except urllib.error.URLError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


INCARNATION: dict[str, object] = {
    "version": 1,
    "job_id": "missing_1",
    "attempt": 1,
    "task_type": "chief",
    "task_index": 0,
    "incarnation": 1,
    "vm_generation": 1,
    "vm": {
        "name": "tm-missing-1-aaaaaaaaaaaaaaaa-chief-0",
        "zone": "us-central1-a",
        "instance_id": "1",
    },
    "at": "2026-11-21T03:00:00Z",
}
ACCEPT_JOBS = {"upload", "submit", "api"}
NO_JOB = "there is no job missing_1"
EVENTS: dict[str, tuple[dict[str, object], str]] = {
    "submit": ({"jobId": "staged_1", **a_spec()}, ""),
    "vm_ready": (INCARNATION, NO_JOB),
    "replica_exit": ({**INCARNATION, "cause": "process", "exit_status": 1}, NO_JOB),
    "maintenance": ({**INCARNATION, "cause": "preemption"}, NO_JOB),
    "provision": ({"version": 1, "job_id": "missing_1"}, NO_JOB),
    "sweep": ({}, ""),
    "tune": ({"version": 1, "job_id": "missing_1"}, NO_JOB),
    "upload": ({}, "not a Cloud Storage notification"),
}
"""Function → an event, and the beginning of its dead-letter reason (empty: it is handled)."""


def test_events_cover_every_function() -> None:
    assert {*EVENTS, "api", "console"} == set(stage.FUNCTIONS)


@dataclass(frozen=True)
class Emulators:
    """Emulators for the functions of one test, with their own project and topics."""

    pubsub: PubSub
    variables: dict[str, str]

    def reasons(self) -> list[str]:
        return [message["attributes"]["reason"] for message in self.pubsub.pull(topics.DEAD_LETTER)]


@pytest.fixture
def emulators(
    firestore_emulator: str, pubsub_emulator: str, storage_emulator: str
) -> Iterator[Emulators]:
    project = f"staged-{uuid.uuid4().hex[:8]}"
    with suppress(loopback.CallError):  # the bucket of an earlier test
        create_bucket(storage_emulator, project, "bucket")
    package = "/upload/storage/v1/b/bucket/o?uploadType=media&name=trainer-0.1.tar.gz"
    loopback.call(storage_emulator, "POST", package, {})
    pubsub = PubSub(pubsub_emulator, project)
    for topic in (topics.DEAD_LETTER, topics.PROVISION):
        pubsub.create_topic(topic)
    pubsub.create_pull(topics.DEAD_LETTER, topics.DEAD_LETTER)
    with serving(iam.listen(0, project, SECRET)) as access:
        closed_port = "http://127.0.0.1:9"  # calls fail at once
        yield Emulators(
            pubsub,
            {
                "TRAINMASTER_PROJECT": project,
                "TRAINMASTER_AGENT": f"gs://stage/{agent_object(agent_archive())}",
                "TRAINMASTER_LOGGING_ENDPOINT": closed_port,
                "TRAINMASTER_COMPUTE_ENDPOINT": closed_port,
                "TRAINMASTER_IAM_ENDPOINT": access,
                "TRAINMASTER_IAM_TOKENS_ENDPOINT": access,
                "TRAINMASTER_IAM_PEOPLE_ENDPOINT": access,
                "TRAINMASTER_REGISTRY_ENDPOINT": access,
                "TRAINMASTER_SECRETS_ENDPOINT": access,
                "TRAINMASTER_IAM_ACCOUNTS_ENDPOINT": access,
                "FIRESTORE_EMULATOR_HOST": firestore_emulator,
                "PUBSUB_EMULATOR_HOST": pubsub_emulator,
                "STORAGE_EMULATOR_HOST": f"http://{storage_emulator}",
                "GOOGLE_CLOUD_PROJECT": project,
            },
        )


@pytest.mark.slow
@HEAVY
@pytest.mark.timeout(900)
@pytest.mark.parametrize("function", EVENTS)
def test_function_starts_from_its_archive_and_handles_or_dead_letters_an_event(
    function: str,
    archives: dict[str, Path],
    environments: Path,
    tmp_path: Path,
    emulators: Emulators,
) -> None:
    event, reason = EVENTS[function]
    with running_from_archive(function, archives, environments, tmp_path, emulators) as port:
        assert push(port, event) == 204
    reasons = emulators.reasons()
    assert len(reasons) == bool(reason)
    assert all(text.startswith(reason) for text in reasons), reasons


@pytest.mark.slow
@HEAVY
@pytest.mark.timeout(900)
def test_api_starts_from_its_archive_and_creates_a_job(
    archives: dict[str, Path], environments: Path, tmp_path: Path, emulators: Emulators
) -> None:
    path = f"/v1/projects/{emulators.variables['TRAINMASTER_PROJECT']}/jobs"
    with running_from_archive("api", archives, environments, tmp_path, emulators) as port:
        assert call(port, "GET", path)[0] == 401
        status, job = call(port, "POST", path, {"jobId": "staged_1", **a_spec()}, OWNER)
        assert (status, job.get("state")) == (200, "QUEUED"), job
        assert call(port, "GET", f"{path}/staged_1", token=VIEWER)[1]["jobId"] == "staged_1"
        assert call(port, "POST", f"{path}/staged_1:cancel", body={}, token=VIEWER)[0] == 403


@pytest.mark.slow
@HEAVY
@pytest.mark.timeout(900)
def test_console_starts_from_its_archive_and_shows_pages_to_users_of_iap(
    archives: dict[str, Path], environments: Path, tmp_path: Path, emulators: Emulators
) -> None:
    issuer, audience = (
        IapIssuer(),
        "/projects/17/locations/us-central1/services/trainmaster-console",
    )
    with serving(issuer.listen()) as keys:
        emulators.variables.update(
            {"TRAINMASTER_CONSOLE_AUDIENCE": audience, "TRAINMASTER_CONSOLE_KEYS": keys}
        )
        with running_from_archive("console", archives, environments, tmp_path, emulators) as port:
            assert fetch(port, "/jobs", headers={})[0] == 401
            assertion = issuer.assertion("anna@example.com", audience, datetime.now(UTC))
            status, page = fetch(port, "/jobs", {ASSERTION: assertion})
            assert status == 200
            assert "There are no jobs" in page
            for address in re.findall(r'(?:href|src)="(/assets/[^"]+)"', page):
                assert fetch(port, address, {ASSERTION: assertion})[0] == 200


def fetch(port: int, path: str, headers: dict[str, str]) -> tuple[int, str]:
    """Get a page as soon as the function listens."""
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return int(error.code), error.read().decode()
        except urllib.error.URLError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


@contextmanager
def running_from_archive(
    function: str, archives: dict[str, Path], environments: Path, folder: Path, emulators: Emulators
) -> Iterator[int]:
    with zipfile.ZipFile(archives[function]) as file:
        file.extractall(folder)
    with running(python_for(function, environments), folder, function, emulators.variables) as port:
        yield port
