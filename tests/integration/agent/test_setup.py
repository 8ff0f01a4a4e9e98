"""Packages: downloaded and installed once per VM, without any network, or reported as what they are."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from shared.agent.control.workspace import Place
from shared.agent.http.metadata_server import Google, Metadata
from shared.agent.reporting.serial_console import Console
from shared.agent.setup import gpu_driver, packages
from shared.agent.setup.cloud_storage import Objects
from shared.agent.setup.failure import TRIES, Failure, Patience
from shared.agent.setup.packages import builds_without_isolation
from shared.agent.setup.setup import Setup

from .support.cloud import Cloud
from .support.packages import PYPROJECT, sdist, tarball, wheel
from .support.vm import CLUSTER, Vm, replica_id

TRAINER = "gs://b/jobs/trainer-0.1.tar.gz"
WAITS = """
import os, time
while not os.path.exists(os.path.expanduser("~/go")):
    time.sleep(0.02)
raise SystemExit(1)
"""
STARTED_WITH = (
    f"Running task with arguments: --cluster={json.dumps(CLUSTER)} "
    '--task={"type": "worker", "index": 1} --job={"args": ["ü"]}'
)
TASK = "import helper; print('TRAINED WITH', helper.NAME)"


def test_packages_are_installed_in_order_with_the_documented_calls_and_run_with_the_documented_words(
    cloud: Cloud, offline: Vm
) -> None:
    cloud.objects["gs://b/jobs/helper-0.1-py3-none-any.whl"] = wheel("helper", "NAME = 'a wheel'")
    cloud.objects[TRAINER] = sdist("trainer", TASK, requires=("helper",))
    offline.gang(package_uris=["gs://b/jobs/helper-0.1-py3-none-any.whl", TRAINER])
    cloud.direct(1, 1)
    offline.boot()
    assert cloud.wait_for_message("replica-exit").body["exit_status"] == 0
    assert offline.wait_for_line("TRAINED") == "TRAINED WITH a wheel"
    offline.wait_for_line("[trainmaster] The exit is reported.")
    said = [line.decode().removeprefix("[trainmaster] ") for line in offline.lines("[trainmaster] ")]
    assert said[said.index("Directive: run attempt 1, incarnation 1.") + 1 : said.index("The exit is reported.")] == [
        # As replicas of the old service said it, from real logs and its launcher. Two are left out: `Running
        # run_module.py`, which is no file of ours, and `Running command: gsutil -q cp …`: the agent does without it.
        STARTED_WITH,
        "Running module trainer.task.",
        "Downloading the package: gs://b/jobs/helper-0.1-py3-none-any.whl",
        "Installing the package: gs://b/jobs/helper-0.1-py3-none-any.whl",
        "Running command: pip3 install --user --upgrade --force-reinstall --no-deps helper-0.1-py3-none-any.whl",
        "Running command: pip3 install --user helper-0.1-py3-none-any.whl",
        f"Downloading the package: {TRAINER}",
        f"Installing the package: {TRAINER}",
        "Running command: pip3 install --user --upgrade --force-reinstall --no-deps trainer-0.1.tar.gz",
        "Running command: pip3 install --user trainer-0.1.tar.gz",
        "Running command: python3 -m trainer.task",
        "Module completed; cleaning up.",
        "Clean up finished.",
        "Task completed successfully.",
    ]
    downloads = len([path for path, _ in cloud.requests if path.startswith("/storage/")])

    cloud.direct(1, 2)
    cloud.wait_for_message("replica-exit", (1, 2))
    offline.power_off()
    cloud.direct(1, 3)
    offline.boot()
    cloud.wait_for_message("replica-exit", (1, 3))
    assert len([path for path, _ in cloud.requests if path.startswith("/storage/")]) == downloads == 2


def test_a_package_with_a_pyproject_is_built_with_what_the_vm_has(cloud: Cloud, offline: Vm) -> None:
    cloud.objects[TRAINER] = sdist("trainer", "print('TRAINED')", extra={"pyproject.toml": PYPROJECT})
    offline.gang(package_uris=[TRAINER])
    cloud.direct(1, 1)
    offline.boot()
    assert cloud.wait_for_message("replica-exit").body["exit_status"] == 0
    offline.wait_for_line("[trainmaster] Trying again with the build tools of this VM.")
    offline.wait_for_line("TRAINED")


def test_a_package_that_pip_refuses_is_a_permanent_failure_with_pips_words(cloud: Cloud, offline: Vm) -> None:
    broken = sdist("trainer", "", extra={"setup.py": "raise RuntimeError('no such compiler')"})
    cloud.objects[TRAINER] = broken
    offline.gang(package_uris=[TRAINER])
    cloud.direct(1, 1)
    offline.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["signal"]) == ("install", 1, None)
    assert (body["error"]["type"], body["error"]["message"]) == ("RuntimeError", "no such compiler")
    assert "RuntimeError: no such compiler" in body["tail"]
    assert cloud.said() == [("replica-exit", (1, 1))]


def test_a_dependency_that_does_not_exist_is_a_permanent_failure(cloud: Cloud, offline: Vm) -> None:
    cloud.objects[TRAINER] = sdist("trainer", "", requires=("no-such-thing",))
    offline.gang(package_uris=[TRAINER])
    cloud.direct(1, 1)
    offline.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert body["cause"] == "install"
    assert body["error"] == {
        "type": "PackageError",
        "message": "cannot install trainer-0.1.tar.gz: pip ended with status 1: "
        "ERROR: No matching distribution found for no-such-thing",
        "frame": "",
    }


@pytest.mark.parametrize("uri", [TRAINER, "gs://b/folder/", "http://h/p.tar.gz", "gs:///x"])
def test_a_package_that_is_not_there_is_a_permanent_failure(cloud: Cloud, vm: Vm, uri: str) -> None:
    vm.gang(package_uris=[uri])
    cloud.direct(1, 1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"]) == ("install", None)
    assert uri in body["error"]["message"]
    assert uri in body["tail"]


def test_after_a_failed_setup_the_next_incarnation_tries_again(cloud: Cloud, offline: Vm) -> None:
    offline.gang(package_uris=[TRAINER])
    cloud.direct(1, 1)
    offline.boot()
    cloud.wait_for_message("replica-exit", (1, 1))
    cloud.objects[TRAINER] = sdist("trainer", "print('TRAINED')")
    cloud.direct(1, 2)
    assert cloud.wait_for_message("replica-exit", (1, 2)).body["exit_status"] == 0
    assert cloud.said() == [("replica-exit", (1, 1)), ("vm-ready", (1, 2)), ("replica-exit", (1, 2))]


def test_directives_are_obeyed_while_packages_are_installed(cloud: Cloud, offline: Vm) -> None:
    slow = {"setup.py": WAITS}
    cloud.objects[TRAINER] = sdist("trainer", "", extra=slow)
    offline.gang(package_uris=[TRAINER])
    cloud.direct(1, 1)
    offline.boot()
    offline.wait_for_line("[trainmaster] Running command: pip3")
    cloud.direct(2, 1)
    offline.wait_for_line("[trainmaster] Directive: run attempt 2")
    (offline.home / "go").touch()
    cloud.wait_for_message("replica-exit", (2, 1))
    assert cloud.said() == [("replica-exit", (2, 1))]


def test_a_shutdown_does_not_wait_for_pip(cloud: Cloud, offline: Vm) -> None:
    stuck = {"setup.py": "import signal; signal.signal(15, signal.SIG_IGN); signal.pause()"}
    cloud.objects[TRAINER] = sdist("trainer", "", extra=stuck)
    offline.gang(package_uris=[TRAINER])
    cloud.direct(1, 1)
    offline.boot()
    offline.wait_for_line("[trainmaster] Running command: pip3")
    offline.terminate()
    assert offline.wait() == 0
    assert cloud.said() == []


class Storage:
    """The agent's Setup against the stand-in, in this process, so that its waiting can be watched."""

    def __init__(self, cloud: Cloud, work: Path, host: str | None = None) -> None:
        self.pauses: list[float] = []
        metadata = Metadata(cloud.host)
        google = Google(host or cloud.host, "", metadata)
        console = Console(os.open(os.devnull, os.O_WRONLY))
        self.setup = Setup(
            replica_id(package_uris=[TRAINER]),
            Place(work, {}, console),
            metadata=metadata,
            objects=Objects(google, Patience(console, self.pauses.append)),
            secret_manager=google,
            engine=None,
            pause=self.pauses.append,
        )

    def install(self) -> Failure:
        failure = self.setup.prepare(is_installed=False)
        assert isinstance(failure, Failure)
        return failure


def test_nothing_is_set_up_on_a_gpu_without_a_driver(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_driver, "lacks_driver", lambda: True)
    failure = Storage(cloud, tmp_path).install()
    assert (failure.cause, failure.error["type"]) == ("install", "DriverError")
    assert cloud.requests == []


def test_a_storage_that_stays_unavailable_is_a_passing_failure(cloud: Cloud, tmp_path: Path) -> None:
    cloud.storage_statuses = [503, 500, 429, 503, 503, 200]
    storage = Storage(cloud, tmp_path)
    failure = storage.install()
    assert (failure.cause, failure.exit_status, failure.error["type"]) == ("setup", None, "DownloadError")
    assert len(storage.pauses) == TRIES - 1
    assert storage.pauses == sorted(storage.pauses)
    assert cloud.storage_statuses == [200]


def test_a_storage_that_cannot_be_reached_is_a_passing_failure(cloud: Cloud, tmp_path: Path) -> None:
    assert Storage(cloud, tmp_path, host="127.0.0.1:1").install().cause == "setup"


def test_a_hiccup_of_the_storage_is_no_failure(cloud: Cloud, tmp_path: Path) -> None:
    cloud.storage_statuses = [503, 401]
    storage = Storage(cloud, tmp_path)
    assert "404" in storage.install().error["message"]
    assert len(storage.pauses) == 2


@pytest.mark.parametrize("status", [401, 403])
def test_a_storage_that_forbids_is_a_permanent_failure(cloud: Cloud, tmp_path: Path, status: int) -> None:
    cloud.storage_statuses = [status] * TRIES
    assert Storage(cloud, tmp_path).install().cause == "install"


@pytest.mark.parametrize(
    ("name", "files", "expected"),
    [
        ("t.tar.gz", {"t-1/setup.py": ""}, True),
        ("t.tar.gz", {"t-1/setup.py": "", "t-1/pyproject.toml": ""}, False),
        ("t.tar.gz", {"t-1/setup.py": "", "t-1/t/data/pyproject.toml": ""}, True),
        ("t.tar.gz", {"./setup.py": "", "./pyproject.toml": ""}, False),
        ("t-0.1-py3-none-any.whl", {}, False),
    ],
)
def test_only_a_package_of_a_setup_py_is_built_with_the_vms_own_setuptools_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, files: dict[str, str], expected: bool
) -> None:
    monkeypatch.setattr(packages, "has_setuptools", lambda: True)
    (tmp_path / name).write_bytes(tarball(files))
    assert builds_without_isolation(tmp_path / name) is expected


def test_an_archive_that_cannot_be_read_is_left_to_pip(tmp_path: Path) -> None:
    (tmp_path / "t.tar.gz").write_bytes(b"no archive")
    assert builds_without_isolation(tmp_path / "t.tar.gz") is False
