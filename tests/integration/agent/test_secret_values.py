"""Variables and secrets of the program's environment."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from trainmaster.agent.google_http.google_api import GoogleApi
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup.secret_values import SecretReader, version_path
from trainmaster.agent.setup.setup_errors import TRIES, Retrier, SetupError

from .support.cloud import Cloud
from .support.vm import Vm

KEY = "projects/p/secrets/key/versions/latest"
SHOWS = "import json, os; print('ENV', json.dumps(dict(os.environ)))"


def test_program_gets_variables_and_secrets_but_platform_variables_take_precedence(
    cloud: Cloud, vm: Vm
) -> None:
    vm.program(SHOWS)
    cloud.secrets[KEY] = "grün\nzwei".encode()
    vm.configure(
        variables={"LEVEL": "debug", "RANK": "99", "WORLD_SIZE": "99"}, secrets={"API_KEY": KEY}
    )
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    environment = json.loads(vm.wait_for_line("ENV ")[4:])
    desired = {"LEVEL": "debug", "API_KEY": "grün\nzwei", "RANK": "2", "WORLD_SIZE": "3"}
    assert {name: environment[name] for name in desired} == desired


def test_secret_is_read_at_each_start_and_neither_printed_nor_stored(cloud: Cloud, vm: Vm) -> None:
    vm.program("import os; print('LENGTH', len(os.environ['API_KEY']))")
    cloud.secrets[KEY] = b"hunter2"
    vm.configure(secrets={"API_KEY": "key"})
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    cloud.wait_for_message("replica-exit", (1, 1))
    cloud.secrets[KEY] = b"hunter2-rotated"
    cloud.direct(attempt=1, incarnation=2)
    cloud.wait_for_message("replica-exit", (1, 2))
    assert [line.split()[-1] for line in vm.lines("LENGTH")] == [b"7", b"15"]
    assert not any(b"hunter2" in line for line in vm.console)
    assert not any(b"hunter2" in path.read_bytes() for path in vm.work.rglob("*") if path.is_file())


@pytest.mark.parametrize(("status", "words"), [(404, "404"), (403, "403")])
def test_unreadable_secret_is_a_permanent_failure_with_its_name(
    cloud: Cloud, vm: Vm, status: int, words: str
) -> None:
    cloud.secret_statuses = [status]
    vm.configure(secrets={"API_KEY": "key"})
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["error"]["type"]) == ("install", "SecretError")
    assert KEY in body["error"]["message"]
    assert words in body["error"]["message"]
    assert cloud.published() == [("replica-exit", (1, 1))]


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("key", KEY),
        ("key/versions/7", "projects/p/secrets/key/versions/7"),
        ("secrets/key", KEY),
        ("projects/other/secrets/key", "projects/other/secrets/key/versions/latest"),
        ("projects/other/secrets/key/versions/7", "projects/other/secrets/key/versions/7"),
        ("a/b/c", None),
        ("", None),
    ],
)
def test_short_secret_name_means_the_jobs_project_and_latest_version(
    name: str, path: str | None
) -> None:
    assert version_path(name, "p") == path


def secrets(cloud: Cloud, host: str, pauses: list[float]) -> SecretReader:
    console = Console(os.open(os.devnull, os.O_WRONLY))
    google = GoogleApi(emulator=None, real=f"http://{host}", metadata=MetadataServer(cloud.host))
    return SecretReader(google, Retrier(console, pauses.append), "p")


def test_secret_is_read_with_the_vms_token(cloud: Cloud) -> None:
    cloud.secrets[KEY] = b"x"
    assert secrets(cloud, cloud.host, pauses=[]).read({"A": "key"}) == {"A": "x"}
    sent = [
        headers.get("Authorization") for path, headers in cloud.requests if path.endswith(":access")
    ]
    assert sent == ["Bearer secret"]


def test_unavailable_secret_manager_is_a_transient_failure(cloud: Cloud, tmp_path: Path) -> None:
    cloud.secret_statuses = [503] * TRIES
    pauses: list[float] = []
    with pytest.raises(SetupError) as error:
        secrets(cloud, cloud.host, pauses).read({"A": "key"})
    assert error.value.failure.cause == "setup"
    assert len(pauses) == TRIES - 1


def test_binary_secret_is_named_but_not_printed(cloud: Cloud) -> None:
    cloud.secrets[KEY] = b"\xffpass"
    with pytest.raises(SetupError, match="not text") as error:
        secrets(cloud, cloud.host, pauses=[]).read({"A": "key"})
    assert error.value.failure.cause == "install"
    assert "pass" not in error.value.failure.tail
