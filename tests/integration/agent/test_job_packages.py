"""The job's packages: installed once per VM, without a network; failures are reported as permanent
or transient.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import os
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.agent.google_http.google_api import GoogleApi
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.results import SetupFailure
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup import gpu_driver, job_packages
from trainmaster.agent.setup.cloud_storage import StorageReader
from trainmaster.agent.setup.job_packages import builds_without_isolation, has_check_option
from trainmaster.agent.setup.setup import Setup
from trainmaster.agent.setup.setup_errors import TRIES, Retrier
from trainmaster.agent.workspace import Workspace

from .support.cloud import Cloud
from .support.package_index import PackageIndex
from .support.packages import PYPROJECT, sdist, tarball, wheel, wheel_of
from .support.vm import CLUSTER, Vm, agent_identity

TRAINER = "gs://b/jobs/trainer-0.1.tar.gz"
TRAINER_WHEEL = "gs://b/jobs/trainer-0.1-py3-none-any.whl"
HELPER = "gs://b/jobs/helper-0.1-py3-none-any.whl"
PIP_THAT_WAITS = """
import os, time
print("pip waits", flush=True)
while not os.path.exists(os.path.expanduser("~/go")):
    time.sleep(0.02)
raise SystemExit(1)
"""
PIP_THAT_UNPACKS = """
import os, sys, zipfile
for name in sys.argv:
    if name.endswith(".whl"):
        zipfile.ZipFile(name).extractall(os.environ["PYTHONPATH"])
"""
PIP_WITHOUT_DEPENDENCIES = """
import sys
if "--no-deps" not in sys.argv:
    sys.exit("ERROR: No matching distribution found for no-such-thing")
"""
TASK_LINE = (
    f"Running task with arguments: --cluster={json.dumps(CLUSTER)} "
    '--task={"type": "worker", "index": 1} --job={"args": ["ü"]}'
)
TASK = "import helper; print('TRAINED WITH', helper.NAME)"


@pytest.fixture
def package_index() -> Iterator[PackageIndex]:
    index = PackageIndex()
    yield index
    index.close()


def trainer_wheel(task: str, requires: tuple[str, ...] = ()) -> bytes:
    return wheel_of(
        "trainer", {"trainer/__init__.py": "", "trainer/task.py": task}, requires=requires
    )


def package_downloads(cloud: Cloud) -> int:
    return sum(path.startswith("/storage/v1/b/b/o/jobs") for path, _ in cloud.requests)


def test_packages_are_installed_in_order_by_documented_commands_and_never_from_the_package_index(
    cloud: Cloud, offline: Vm, package_index: PackageIndex
) -> None:
    """The attack: a stranger registers the name of an internal package, which the job's first
    package requires.
    """
    package_index.add("helper", "99.0", wheel("helper", "NAME = 'an attacker'", version="99.0"))
    package_index.add("numbers-of-pi", "0.1", wheel("numbers_of_pi", module=""))
    cloud.objects[TRAINER] = sdist("trainer", TASK, requires=("helper", "numbers-of-pi"))
    cloud.objects[HELPER] = wheel("helper", "NAME = 'a wheel'")
    del offline.environ["PIP_NO_INDEX"]
    offline.environ["PIP_INDEX_URL"] = package_index.url
    offline.configure(package_uris=[TRAINER, HELPER])
    cloud.direct(attempt=1, incarnation=1)
    offline.boot()
    assert cloud.wait_for_message("replica-exit").body["exit_status"] == 0
    assert offline.wait_for_line("TRAINED") == "TRAINED WITH a wheel"
    assert package_index.requested == ["numbers-of-pi"]
    offline.wait_for_line("[trainmaster] The exit is reported.")
    lines = [
        line.decode().removeprefix("[trainmaster] ") for line in offline.lines("[trainmaster] ")
    ]
    assert lines[
        lines.index("Directive: run attempt 1, incarnation 1.") + 1 : lines.index(
            "The exit is reported."
        )
    ] == [
        # The lines of AI Platform Training, from real logs and its launcher. Two are left out:
        # `Running run_module.py`, a file that does not exist here, and `Running command: gsutil -q
        # cp …`, which is not used. The service installed each package with its dependencies before
        # the next one.
        TASK_LINE,
        "Running module trainer.task.",
        f"Downloading the package: {TRAINER}",
        f"Downloading the package: {HELPER}",
        f"Installing the package: {TRAINER}",
        (
            "Running command: pip3 install --user --upgrade --force-reinstall --no-deps"
            " trainer-0.1.tar.gz"
        ),
        f"Installing the package: {HELPER}",
        (
            "Running command: pip3 install --user --upgrade --force-reinstall --no-deps"
            " helper-0.1-py3-none-any.whl"
        ),
        "Running command: pip3 install --user trainer-0.1.tar.gz helper-0.1-py3-none-any.whl",
        "Running command: python3 -m trainer.task",
        "Module completed; cleaning up.",
        "Clean up finished.",
        "Task completed successfully.",
    ]
    assert package_downloads(cloud) == 2

    cloud.direct(attempt=1, incarnation=2)
    cloud.wait_for_message("replica-exit", (1, 2))
    offline.power_off()
    cloud.direct(attempt=1, incarnation=3)
    offline.boot()
    cloud.wait_for_message("replica-exit", (1, 3))
    assert package_downloads(cloud) == 2


@pytest.mark.parametrize(
    "variables", [{"PYTHONNOUSERSITE": "1"}, {"PYTHONUSERBASE": "/nowhere"}], ids=str
)
def test_variable_of_the_job_does_not_hide_its_packages(
    cloud: Cloud, offline: Vm, variables: dict[str, str]
) -> None:
    cloud.objects[HELPER] = wheel("helper", "NAME = 'a wheel'")
    cloud.objects[TRAINER_WHEEL] = trainer_wheel(TASK)
    offline.configure(package_uris=[TRAINER_WHEEL, HELPER], variables=variables)
    cloud.direct(attempt=1, incarnation=1)
    offline.boot()
    assert cloud.wait_for_message("replica-exit").body["exit_status"] == 0
    assert offline.wait_for_line("TRAINED") == "TRAINED WITH a wheel"


def test_vm_that_starts_later_installs_the_generation_that_was_accepted(
    cloud: Cloud, vm: Vm
) -> None:
    """The attack: a program of another job replaces the package while the job runs."""
    vm.module("pip.__main__", PIP_THAT_UNPACKS)
    cloud.objects[TRAINER_WHEEL] = trainer_wheel("print('ATTACKED')")
    cloud.objects[f"{TRAINER_WHEEL}#7"] = trainer_wheel("print('TRAINED')")
    vm.configure(package_uris=[f"{TRAINER_WHEEL}#7"])
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("TRAINED")
    assert not vm.lines("ATTACKED")


def test_package_with_a_pyproject_is_built_with_the_vms_tools_offline(
    cloud: Cloud, offline: Vm
) -> None:
    cloud.objects[TRAINER] = sdist(
        "trainer", "print('TRAINED')", extra={"pyproject.toml": PYPROJECT}
    )
    offline.configure(package_uris=[TRAINER])
    cloud.direct(attempt=1, incarnation=1)
    offline.boot()
    assert cloud.wait_for_message("replica-exit").body["exit_status"] == 0
    offline.wait_for_line("[trainmaster] Trying again with the build tools of this VM.")
    offline.wait_for_line("TRAINED")


def test_package_that_pip_rejects_is_a_permanent_failure_with_pips_error(
    cloud: Cloud, offline: Vm
) -> None:
    broken = sdist("trainer", task="", extra={"setup.py": "raise RuntimeError('no such compiler')"})
    cloud.objects[TRAINER] = broken
    offline.configure(package_uris=[TRAINER])
    cloud.direct(attempt=1, incarnation=1)
    offline.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["signal"]) == ("install", 1, None)
    assert (body["error"]["type"], body["error"]["message"]) == ("RuntimeError", "no such compiler")
    assert "RuntimeError: no such compiler" in body["tail"]
    assert cloud.published() == [("replica-exit", (1, 1))]


def test_missing_dependency_is_a_permanent_failure(cloud: Cloud, vm: Vm) -> None:
    """With the message of a real pip, which `test_runtime_packages.py` shows."""
    vm.module("pip.__main__", PIP_WITHOUT_DEPENDENCIES)
    cloud.objects[TRAINER_WHEEL] = trainer_wheel("", requires=("no-such-thing",))
    vm.configure(package_uris=[TRAINER_WHEEL])
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert body["cause"] == "install"
    assert body["error"] == {
        "type": "PackageError",
        "message": (
            "cannot install trainer-0.1-py3-none-any.whl: pip ended with status 1: "
            "ERROR: No matching distribution found for no-such-thing"
        ),
        "frame": "",
    }


def test_failed_setup_is_repeated_for_the_next_incarnation(cloud: Cloud, offline: Vm) -> None:
    """The package is named by the hash of its content."""
    trainer = trainer_wheel("print('TRAINED')")
    offline.configure(
        package_uris=[f"{TRAINER_WHEEL}#sha256={hashlib.sha256(trainer).hexdigest()}"]
    )
    cloud.direct(attempt=1, incarnation=1)
    offline.boot()
    cloud.wait_for_message("replica-exit", (1, 1))
    cloud.objects[TRAINER_WHEEL] = trainer
    cloud.direct(attempt=1, incarnation=2)
    assert cloud.wait_for_message("replica-exit", (1, 2)).body["exit_status"] == 0
    assert cloud.published() == [
        ("replica-exit", (1, 1)),
        ("vm-ready", (1, 2)),
        ("replica-exit", (1, 2)),
    ]
    assert offline.lines("TRAINED")
    assert len(offline.lines("[trainmaster] Running command: pip3 install")) == 1
    assert offline.lines("[trainmaster] The packages require no others.")


def test_directive_is_followed_while_packages_are_installed(cloud: Cloud, vm: Vm) -> None:
    vm.module("pip.__main__", PIP_THAT_WAITS)
    cloud.objects[TRAINER_WHEEL] = b""
    vm.configure(package_uris=[TRAINER_WHEEL])
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("pip waits")
    cloud.direct(attempt=2, incarnation=1)
    vm.wait_for_line("[trainmaster] Directive: run attempt 2")
    (vm.home / "go").touch()
    cloud.wait_for_message("replica-exit", (2, 1))
    assert cloud.published() == [("replica-exit", (2, 1))]


def test_shutdown_does_not_wait_for_pip(cloud: Cloud, vm: Vm) -> None:
    vm.module(
        "pip.__main__",
        "import signal; signal.signal(15, signal.SIG_IGN); print('pip', flush=True);"
        " signal.pause()",
    )
    cloud.objects[TRAINER_WHEEL] = b""
    vm.configure(package_uris=[TRAINER_WHEEL])
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    vm.wait_for_line("pip")
    vm.terminate()
    assert vm.wait() == 0
    assert cloud.published() == []


class Storage:
    """The agent's Setup with the stand-in for Google Cloud, in this process, so that its pauses can
    be recorded.
    """

    def __init__(
        self, cloud: Cloud, work: Path, host: str | None = None, uri: str = TRAINER
    ) -> None:
        self.pauses: list[float] = []
        metadata = MetadataServer(cloud.host)
        google = GoogleApi(host or cloud.host, real="", metadata=metadata)
        console = Console(os.open(os.devnull, os.O_WRONLY))
        self.setup = Setup(
            agent_identity(package_uris=[uri]),
            Workspace(work, environ={}, console=console),
            metadata=metadata,
            storage=StorageReader(google, Retrier(console, self.pauses.append)),
            secret_manager=google,
            find_engine=lambda: None,
            pause=self.pauses.append,
        )

    def install(self) -> SetupFailure:
        failure = self.setup.prepare(is_installed=False)
        assert isinstance(failure, SetupFailure)
        return failure


@pytest.mark.parametrize(
    ("version", "expected"), [("22.0.2", False), ("22.3.1", True), ("26.3", True), ("", False)]
)
def test_option_for_build_dependencies_is_used_only_where_pip_has_it(
    version: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainmaster.agent.setup.job_packages.installed_version", lambda _: version)
    assert has_check_option() is expected


def test_setup_on_a_gpu_without_a_driver_fails_before_any_download(
    cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_driver, "lacks_gpu_driver", lambda: True)
    failure = Storage(cloud, tmp_path).install()
    assert (failure.cause, failure.error["type"]) == ("install", "DriverError")
    assert cloud.requests == []


def test_storage_that_stays_unavailable_is_a_transient_failure(
    cloud: Cloud, tmp_path: Path
) -> None:
    cloud.storage_statuses = [503, 500, 429, 503, 503, 200]
    storage = Storage(cloud, tmp_path)
    failure = storage.install()
    assert (failure.cause, failure.exit_status, failure.error["type"]) == (
        "setup",
        None,
        "DownloadError",
    )
    assert len(storage.pauses) == TRIES - 1
    assert storage.pauses == sorted(storage.pauses)
    assert cloud.storage_statuses == [200]


def test_unreachable_storage_is_a_transient_failure(cloud: Cloud, tmp_path: Path) -> None:
    assert Storage(cloud, tmp_path, host="127.0.0.1:1").install().cause == "setup"


def test_transient_storage_errors_are_retried(cloud: Cloud, tmp_path: Path) -> None:
    cloud.storage_statuses = [503, 401]
    storage = Storage(cloud, tmp_path)
    assert "404" in storage.install().error["message"]
    assert len(storage.pauses) == 2


@pytest.mark.parametrize("status", [401, 403])
def test_forbidden_storage_is_a_permanent_failure(
    cloud: Cloud, tmp_path: Path, status: int
) -> None:
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
def test_package_with_only_a_setup_py_is_built_without_isolation(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    files: dict[str, str],
    expected: bool,
) -> None:
    monkeypatch.setattr(job_packages, "has_setuptools", lambda: True)
    (tmp_path / name).write_bytes(tarball(files))
    assert builds_without_isolation(tmp_path / name) is expected


def test_unreadable_archive_is_built_with_isolation(tmp_path: Path) -> None:
    (tmp_path / "t.tar.gz").write_bytes(b"no archive")
    assert builds_without_isolation(tmp_path / "t.tar.gz") is False


@pytest.mark.parametrize("error", [RecursionError, MemoryError, zlib.error, lzma.LZMAError])
def test_archive_that_python_cannot_read_is_left_to_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """An error in the thread of the setup would end the agent, which starts again, without end."""

    def fail(_: tarfile.TarFile) -> list[str]:
        raise error

    monkeypatch.setattr(tarfile.TarFile, "getnames", fail)
    (tmp_path / "t.tar.xz").write_bytes(lzma.compress(bytes(1024)))
    assert builds_without_isolation(tmp_path / "t.tar.xz") is False


def test_archive_of_headers_of_headers_is_left_to_pip(tmp_path: Path) -> None:
    member = tarfile.TarInfo("name")
    member.type, member.size = tarfile.GNUTYPE_LONGNAME, 4
    header = member.tobuf(tarfile.GNU_FORMAT) + b"abc" + bytes(509)
    (tmp_path / "t.tar.xz").write_bytes(lzma.compress(header * 2000 + bytes(1024)))
    assert builds_without_isolation(tmp_path / "t.tar.xz") is False


@pytest.mark.parametrize("uri", [TRAINER, "gs://b/folder/", "http://h/p.tar.gz", "gs:///x"])
def test_missing_package_is_a_permanent_failure(cloud: Cloud, tmp_path: Path, uri: str) -> None:
    failure = Storage(cloud, tmp_path, uri=uri).install()
    assert (failure.cause, failure.exit_status) == ("install", None)
    assert uri in failure.error["message"]
    assert uri in failure.tail


def test_generation_that_is_gone_is_a_permanent_failure_that_names_it(
    cloud: Cloud, tmp_path: Path
) -> None:
    cloud.objects[TRAINER] = sdist("trainer", "print('ATTACKED')")
    failure = Storage(cloud, tmp_path, uri=f"{TRAINER}#7").install()
    assert failure.cause == "install"
    assert f"{TRAINER}, generation 7" in failure.error["message"]


def test_replaced_content_of_a_package_named_by_its_hash_is_a_permanent_failure(
    cloud: Cloud, tmp_path: Path
) -> None:
    cloud.objects[TRAINER] = sdist("trainer", "print('ATTACKED')")
    failure = Storage(cloud, tmp_path, uri=f"{TRAINER}#sha256={'0' * 64}").install()
    assert failure.cause == "install"
    assert "does not have the SHA-256 hash" in failure.error["message"]
