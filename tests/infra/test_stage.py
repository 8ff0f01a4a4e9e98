"""The archives that functions are deployed from: what is in them, and that each starts from nothing else."""

from __future__ import annotations

import base64
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grimp
import pytest

from emulators.pubsub import PubSub
from emulators.state import ROOT
from infra import stage
from shared import topics
from tests.support.jobs import a_spec

MACHINES = "provision"
CLIENTS = ("google.cloud.compute_v1", "google.cloud.tpu_v2", "google.cloud.storage")


def names(archive: Path) -> set[str]:
    with zipfile.ZipFile(archive) as file:
        return set(file.namelist())


def test_there_is_an_archive_for_every_function_that_infra_deploys(archives: dict[str, Path]) -> None:
    text = (ROOT / "infra" / "functions.tf").read_text(encoding="utf-8")
    block = text.partition("functions = {\n")[2].partition("\n  }\n")[0]
    assert {line.partition("=")[0].strip() for line in block.splitlines()} == set(archives)


def test_the_same_sources_are_the_same_bytes(tmp_path: Path) -> None:
    one, other = (stage.stage(tmp_path / name) for name in ("one", "other"))
    assert {name: path.read_bytes() for name, path in one.items()} == {
        name: path.read_bytes() for name, path in other.items()
    }


@pytest.mark.parametrize("function", stage.FUNCTIONS)
def test_an_archive_holds_what_is_imported_and_not_the_rest(function: str, archives: dict[str, Path]) -> None:
    content = names(archives[function])
    assert {"main.py", "requirements.txt", f"functions/{function}.py"} <= content
    assert not {name for name in content if name.startswith(("tests/", "emulators/", "cli/", "simulator/"))}
    others = {f"functions/{name}.py" for name in stage.FUNCTIONS if name != function}
    assert not content & others
    assert ("shared/agent/startup.sh" in content) is (function == MACHINES)
    assert archives[function].stat().st_size < 300 * 1024


@pytest.mark.parametrize("function", [name for name in stage.FUNCTIONS if name != MACHINES])
def test_light_functions_know_of_no_machines(function: str) -> None:
    graph = grimp.build_graph(
        "functions", "shared", cache_dir=None, include_external_packages=True, exclude_type_checking_imports=True
    )
    modules = {f"functions.{function}", *graph.find_upstream_modules(f"functions.{function}")}
    adapters = {name for name in modules if name.startswith("shared.gcp.")}
    assert not {name for name in adapters if "compute_fleet" in name or "tpu_fleet" in name}
    assert ("shared.gcp.storage_objects" in adapters) is (function == "upload")


@pytest.fixture(scope="module")
def environments(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of virtual environments, one for each requirements file, with that and nothing else."""
    return tmp_path_factory.mktemp("venvs")


def python_for(function: str, folder: Path) -> Path:
    requirements = f"{stage.REQUIREMENTS.get(function, 'functions')}.txt"
    environment = folder / requirements.removesuffix(".txt")
    python = environment / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(environment)], check=True)
        pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install", "--require-hashes"]
        subprocess.run([*pip, "-r", str(ROOT / "requirements" / requirements)], check=True)
    return python


@contextmanager
def running(python: Path, folder: Path, function: str, variables: dict[str, str]) -> Iterator[int]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(python), "-m", "functions_framework", "--target", function, "--source", "main.py"]
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


def post(port: int, data: object, **attributes: str) -> int:
    """Waits for the function to listen."""
    encoded = base64.b64encode(json.dumps(data).encode()).decode()
    body = json.dumps({"message": {"data": encoded, "attributes": attributes, "messageId": "1"}, "subscription": "s"})
    request = urllib.request.Request(f"http://127.0.0.1:{port}/", body.encode(), {"Content-Type": "application/json"})
    deadline = time.monotonic() + 60
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return int(error.code)
        except urllib.error.URLError:
            assert time.monotonic() < deadline
            time.sleep(0.1)


LIFE: dict[str, object] = {
    "version": 1,
    "job_id": "nobody",
    "attempt": 1,
    "task_type": "chief",
    "task_index": 0,
    "incarnation": 1,
    "machine": 1,
    "vm": {"name": "tm-nobody-aaaaaa-chief-0", "zone": "us-central1-a", "instance_id": "1"},
    "at": "2026-11-21T03:00:00Z",
}
EVENTS: dict[str, dict[str, object]] = {
    "submit": {"jobId": "staged_1", **a_spec()},
    "vm_ready": LIFE,
    "replica_exit": {**LIFE, "cause": "process", "exit_status": 1},
    "maintenance": {**LIFE, "cause": "preemption"},
    "provision": {"version": 1, "job_id": "nobody"},
    "sweep": {},
    "upload": {},
}


@pytest.mark.slow
@pytest.mark.heavy
@pytest.mark.timeout(900)
@pytest.mark.parametrize("function", EVENTS)
def test_each_starts_from_its_own_archive_in_an_empty_environment_and_answers(
    function: str,
    archives: dict[str, Path],
    environments: Path,
    tmp_path: Path,
    firestore_emulator: str,
    pubsub_emulator: str,
) -> None:
    """Acknowledged: handled, or put into the dead letter, which takes both emulators."""
    with zipfile.ZipFile(archives[function]) as file:
        file.extractall(tmp_path)
    for topic in (topics.DEAD_LETTER, topics.PROVISION):
        PubSub(pubsub_emulator, "my-project").create_topic(topic)
    variables = {
        "TRAINMASTER_PROJECT": "my-project",
        "TRAINMASTER_LOGGING_ENDPOINT": "http://127.0.0.1:9",  # what cannot be said there holds nothing up
        "TRAINMASTER_COMPUTE_ENDPOINT": "http://127.0.0.1:9",
        "FIRESTORE_EMULATOR_HOST": firestore_emulator,
        "PUBSUB_EMULATOR_HOST": pubsub_emulator,
        "STORAGE_EMULATOR_HOST": "http://127.0.0.1:9",
        "GOOGLE_CLOUD_PROJECT": "my-project",
    }
    with running(python_for(function, environments), tmp_path, function, variables) as port:
        assert post(port, EVENTS[function]) == 204
