"""Installing a container engine where the image has none, as on today's Deep Learning VM images.

The engine is docker, as Debian and Ubuntu build it. A VM with a GPU needs NVIDIA's Container
Toolkit as well: it is installed from NVIDIA's archive where the image does not have it.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from urllib.request import urlopen

from trainmaster.agent.program.container_engine import ContainerEngine, last_lines
from trainmaster.agent.program.devices import has_gpu
from trainmaster.agent.program.program import Program
from trainmaster.agent.setup.cancellable_runner import CancellableRunner
from trainmaster.agent.setup.setup_errors import new_setup_error, retry_setup
from trainmaster.agent.workspace import EMULATED_VM, Workspace

PACKAGE = "docker.io"
TOOLKIT = "nvidia-ctk"
TOOLKIT_PACKAGE = "nvidia-container-toolkit"

_APT = ("apt-get", "--quiet", "--quiet", "--option", "DPkg::Lock::Timeout=300")
"""It waits for the lock, because a first boot installs upgrades."""
_REPAIR = ("dpkg", "--configure", "-a")
"""Complete an installation that the end of an earlier boot interrupted."""
_NVIDIA = "https://nvidia.github.io/libnvidia-container"
"""NVIDIA's archive of packages. Source: NVIDIA Container Toolkit, "Installing with apt"."""
_KEY = Path("usr/share/keyrings/nvidia-container-toolkit.asc")
_SOURCES = Path("etc/apt/sources.list.d/nvidia-container-toolkit.list")
_KEY_S = 20.0  # timeout of the download of the key
_CONFIGURE_GPU = (
    (TOOLKIT, "runtime", "configure", "--runtime=docker"),
    ("systemctl", "restart", "docker"),
)
"""Source: NVIDIA Container Toolkit, installation guide, "Configuring Docker"."""
_PERMANENT = re.compile(
    r"unable to locate package|no installation candidate|has no such package", re.IGNORECASE
)


class EngineInstallation:
    """Installs docker, and what its containers need to use the VM's GPUs."""

    def __init__(
        self,
        runner: CancellableRunner,
        workspace: Workspace,
        pause: Callable[[float], object] = time.sleep,
        *,
        root: Path = Path("/"),
        nvidia: str = _NVIDIA,
    ) -> None:
        """`root`: folder of the system's files. `nvidia`: address of NVIDIA's archive."""
        self._runner = runner
        self._workspace = workspace
        self._pause = pause
        self._root = root
        self._nvidia = nvidia

    def run(self, vm: str) -> ContainerEngine:
        """Install docker and return it.

        `vm`: name of this VM, the label of its containers. Raises SetupError. May be repeated.
        """
        environ = self._workspace.environ
        if EMULATED_VM in environ or shutil.which("apt-get", path=environ.get("PATH")) is None:
            problem = (
                "this VM has no container engine (docker or podman); use a VM image that has one"
            )
            raise new_setup_error("ImageError", problem, transient=False)
        self._workspace.log(f"This image has no container engine: installing {PACKAGE}.")
        retry_setup(self._install, self._workspace, self._pause)
        engine = ContainerEngine.find(environ, vm)
        if engine is None:
            raise new_setup_error(
                "ImageError", f"{PACKAGE} is installed, but has no command", transient=False
            )
        return engine

    def _install(self) -> None:
        install_package(PACKAGE, "ImageError", self._runner, self._workspace)
        if not has_gpu():
            return
        if shutil.which(TOOLKIT, path=self._workspace.environ.get("PATH")) is None:
            self._workspace.log(f"This image lacks {TOOLKIT}: installing {TOOLKIT_PACKAGE}.")
            self._add_nvidias_archive()
            install_package(TOOLKIT_PACKAGE, "ImageError", self._runner, self._workspace)
        for command in _CONFIGURE_GPU:
            _run(command, PACKAGE, "ImageError", self._runner, self._workspace)

    def _add_nvidias_archive(self) -> None:
        """Add NVIDIA's archive to the sources of apt, with the key that signs it."""
        address = f"{self._nvidia}/gpgkey"
        try:
            with urlopen(address, timeout=_KEY_S) as response:  # noqa: S310 - an https address
                key = response.read()
        except OSError as error:
            message = (
                f"cannot install {TOOLKIT_PACKAGE}, which containers need to use the GPU:"
                f" {address}: {error}. The VM needs a way to the internet (Cloud NAT), or an image"
                " that has NVIDIA's Container Toolkit"
            )
            raise new_setup_error("ImageError", message, transient=True) from error
        source = f"deb [signed-by=/{_KEY}] {self._nvidia}/stable/deb/$(ARCH) /\n"
        for path, content in ((_KEY, key), (_SOURCES, source.encode())):
            (self._root / path).parent.mkdir(parents=True, exist_ok=True)
            (self._root / path).write_bytes(content)


def install_package(
    package: str, error_type: str, runner: CancellableRunner, workspace: Workspace
) -> None:
    """Install a package of Debian or Ubuntu. Raises SetupError. May be repeated."""
    install = (*_APT, "install", "--yes", "--no-install-recommends", package)
    for command in (_REPAIR, (*_APT, "update"), install):
        _run(command, package, error_type, runner, workspace)


def _run(
    command: tuple[str, ...],
    package: str,
    error_type: str,
    runner: CancellableRunner,
    workspace: Workspace,
) -> None:
    env = {**workspace.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        program_exit = runner.run(lambda: Program(command, workspace, env=env, cwd=workspace.work))
    except OSError as error:  # the image has no apt-get
        raise new_setup_error(
            error_type, f"cannot install {package}: {error}", transient=False
        ) from error
    if program_exit.exit_status == 0:
        return
    text = last_lines(program_exit)
    message = (
        f"cannot install {package}: {' '.join(command)}: {text}. The VM needs a way to the package"
        " archive of its distribution (Cloud NAT), or an image that has the package"
    )
    raise new_setup_error(
        error_type,
        message,
        transient=_PERMANENT.search(text) is None,
        exit_status=program_exit.exit_status,
        tail=program_exit.tail,
    )
