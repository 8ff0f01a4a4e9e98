"""A job in a container on an image without a container engine: the agent installs one, where it
may.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.support.serving import serving
from trainmaster.agent.program import devices
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup.cancellable_runner import CancellableRunner
from trainmaster.agent.setup.engine_installation import EngineInstallation
from trainmaster.agent.setup.setup_errors import TRIES, SetupError
from trainmaster.agent.workspace import Workspace

from .support.cloud import Cloud
from .support.docker import IMAGE, Docker
from .support.vm import Vm

COMMANDS = ("dpkg", "apt-get", "nvidia-ctk", "systemctl")
SCRIPT = """\
#!/bin/bash
echo "$(basename "$0") $*" >>"{calls}"
case "$*" in
  *install*docker.io*) {on_install} ;;
esac
"""


class Archive:
    """The commands of a distribution on a VM's PATH; its package `docker.io` is the fake engine of
    the other tests.
    """

    def __init__(self, folder: Path, commands: tuple[str, ...] = COMMANDS) -> None:
        self.bin = folder / "archive"
        self.bin.mkdir()
        self._calls = self.bin / "calls"
        self._calls.touch()
        self._commands = commands
        self.on_install("true")

    def on_install(self, script: str) -> None:
        """Choose what an installation of `docker.io` runs."""
        for name in self._commands:
            program = self.bin / name
            program.write_text(SCRIPT.format(calls=self._calls, on_install=script))
            program.chmod(0o755)

    @property
    def calls(self) -> list[str]:
        return self._calls.read_text().splitlines()


def path_without_engine(archive: Archive) -> str:
    """Return a PATH with the archive's commands and what the agent needs, but no engine of this
    machine.
    """
    for name in ("bash", "basename", "id", "mkdir", "sleep", "mv", "cat", "env"):
        (archive.bin / name).symlink_to(f"/bin/{name}")
    (archive.bin / "python3").symlink_to(sys.executable)
    return str(archive.bin)


def test_engine_is_installed_before_the_image_is_pulled(
    cloud: Cloud, vm: Vm, docker: Docker, tmp_path: Path
) -> None:
    docker.push("print('TRAINED')")
    archive = Archive(tmp_path, ("dpkg", "apt-get"))
    packaged = tmp_path / "docker.deb"
    docker.program.rename(packaged)
    archive.on_install(f"mv {packaged} {docker.program}")
    path = f"{docker.program.parent}{os.pathsep}{path_without_engine(archive)}"
    cloud.direct(attempt=1, incarnation=1)
    vm.boot({"PATH": path, "TRAINMASTER_EMULATED_VM": None})
    assert cloud.wait_for_message("replica-exit").body["exit_status"] == 0
    vm.wait_for_line("TRAINED")
    assert len(docker.calls("pull")) == 1
    assert [call.split()[0] for call in archive.calls] == ["dpkg", "apt-get", "apt-get"]
    calls = len(archive.calls)

    cloud.direct(attempt=1, incarnation=2)
    cloud.wait_for_message("replica-exit", (1, 2))
    assert len(archive.calls) == calls


def test_local_vm_installs_nothing_on_the_machine_that_it_shares(
    cloud: Cloud, vm: Vm, tmp_path: Path
) -> None:
    archive = Archive(tmp_path)
    vm.configure(container={"image": IMAGE, "command": []}, python_module="")
    cloud.direct(attempt=1, incarnation=1)
    vm.boot({"PATH": path_without_engine(archive)})
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["error"]["type"]) == ("install", "ImageError")
    assert "no container engine (docker or podman)" in body["error"]["message"]
    assert archive.calls == []


class Installation:
    """The installation in this process, so that its pauses are recorded and the VM's devices can be
    chosen.
    """

    def __init__(self, folder: Path, archive: Archive, nvidia: str = "http://127.0.0.1:9") -> None:
        self.pauses: list[float] = []
        (work := folder / "work").mkdir()
        workspace = Workspace(
            work, {"PATH": path_without_engine(archive)}, Console(os.open(os.devnull, os.O_WRONLY))
        )
        self.root = folder / "root"
        self._installation = EngineInstallation(
            CancellableRunner(), workspace, self.pauses.append, root=self.root, nvidia=nvidia
        )

    def error(self) -> SetupError:
        """Run the installation and return the error that it raises."""
        with pytest.raises(SetupError) as raised:
            self._installation.run("vm")
        return raised.value

    def run(self) -> None:
        self._installation.run("vm")


@pytest.fixture
def gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dev" / "nvidia0").mkdir(parents=True)
    monkeypatch.setattr(devices, "_DEVICES", tmp_path / "dev")


def test_unreachable_archive_is_a_transient_failure_that_names_what_is_needed(
    tmp_path: Path,
) -> None:
    archive = Archive(tmp_path)
    archive.on_install(
        "echo 'E: Failed to fetch http://archive.ubuntu.com/docker.io' >&2; exit 100"
    )
    installation = Installation(tmp_path, archive)
    error = installation.error()
    assert error.failure.cause == "setup"
    assert "Failed to fetch" in str(error)
    assert "Cloud NAT" in str(error)
    assert len(installation.pauses) == TRIES - 1


def test_unknown_package_is_a_permanent_failure(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.on_install("echo 'E: Unable to locate package docker.io' >&2; exit 100")
    installation = Installation(tmp_path, archive)
    assert installation.error().failure.cause == "install"
    assert installation.pauses == []


@pytest.mark.usefixtures("gpu")
def test_engine_on_a_vm_with_a_gpu_gets_nvidias_runtime(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    archive.on_install(
        "printf '#!/bin/sh\\n' >"
        + str(archive.bin / "docker")
        + "; /bin/chmod +x "
        + str(archive.bin / "docker")
    )
    Installation(tmp_path, archive).run()
    assert archive.calls[-2:] == [
        "nvidia-ctk runtime configure --runtime=docker",
        "systemctl restart docker",
    ]


INSTALL_BOTH = """
    case "$*" in
      *docker.io*) printf '#!/bin/sh\\n' >{bin}/docker; /bin/chmod +x {bin}/docker ;;
    esac
"""


@pytest.fixture
def nvidias_archive() -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/gpgkey" else 404)
            self.end_headers()
            self.wfile.write(b"a key")

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing."""

    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        yield address


@pytest.mark.usefixtures("gpu")
def test_toolkit_that_the_image_lacks_is_installed_from_nvidias_archive(
    tmp_path: Path, nvidias_archive: str
) -> None:
    archive = Archive(tmp_path, commands=("dpkg", "apt-get", "systemctl"))
    archive.on_install(INSTALL_BOTH.format(bin=archive.bin))
    installation = Installation(tmp_path, archive, nvidias_archive)
    error = installation.error()
    assert "nvidia-ctk" in str(error), "the package of this archive has no command"
    installed = [call for call in archive.calls if " install " in call]
    assert [call.split()[-1] for call in installed[:2]] == [
        "docker.io",
        "nvidia-container-toolkit",
    ]
    sources = installation.root / "etc/apt/sources.list.d/nvidia-container-toolkit.list"
    key = installation.root / "usr/share/keyrings/nvidia-container-toolkit.asc"
    assert sources.read_text() == (
        "deb [signed-by=/usr/share/keyrings/nvidia-container-toolkit.asc]"
        f" {nvidias_archive}/stable/deb/$(ARCH) /\n"
    )
    assert key.read_bytes() == b"a key"


@pytest.mark.usefixtures("gpu")
def test_unreachable_archive_of_nvidia_is_a_transient_failure_that_names_what_is_needed(
    tmp_path: Path,
) -> None:
    archive = Archive(tmp_path, commands=("dpkg", "apt-get", "systemctl"))
    installation = Installation(tmp_path, archive)
    error = installation.error()
    assert error.failure.cause == "setup"
    assert "which containers need to use the GPU" in str(error)
    assert "Cloud NAT" in str(error)
    assert len(installation.pauses) == TRIES - 1
