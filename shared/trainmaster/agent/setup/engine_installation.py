"""Installing a container engine where the image has none, as on today's Deep Learning VM images.

The engine is docker, as Debian and Ubuntu build it. A VM with a GPU needs NVIDIA's Container
Toolkit as well, which those images have.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable

from trainmaster.agent.program.container_engine import ContainerEngine, last_lines
from trainmaster.agent.program.devices import has_gpu
from trainmaster.agent.program.program import Program
from trainmaster.agent.setup.cancellable_runner import CancellableRunner
from trainmaster.agent.setup.setup_errors import new_setup_error, retry_setup
from trainmaster.agent.workspace import Workspace

PACKAGE = "docker.io"
TOOLKIT = "nvidia-ctk"
EMULATED = "TRAINMASTER_EMULATED_VM"
"""Set on the local stack, whose VMs share the disk of the developer's machine."""

_APT = ("apt-get", "--quiet", "--quiet", "--option", "DPkg::Lock::Timeout=300")
"""It waits for the lock, because a first boot installs upgrades."""
_REPAIR = ("dpkg", "--configure", "-a")
"""Complete an installation that the end of an earlier boot interrupted."""
_CONFIGURE_GPU = (
    (TOOLKIT, "runtime", "configure", "--runtime=docker"),
    ("systemctl", "restart", "docker"),
)
"""Source: NVIDIA Container Toolkit, installation guide, "Configuring Docker"."""
_PERMANENT = re.compile(
    r"unable to locate package|no installation candidate|has no such package", re.IGNORECASE
)


class EngineInstallation:
    def __init__(
        self,
        runner: CancellableRunner,
        workspace: Workspace,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._runner = runner
        self._workspace = workspace
        self._pause = pause

    def run(self, vm: str) -> ContainerEngine:
        """Install docker and return it.

        Raises SetupError. May be repeated. `vm`: the label of its containers.
        """
        environ = self._workspace.environ
        if EMULATED in environ or shutil.which("apt-get", path=environ.get("PATH")) is None:
            problem = (
                "this VM has no container engine (docker or podman); use a VM image that has one"
            )
            raise new_setup_error("ImageError", problem, transient=False)
        if has_gpu() and shutil.which(TOOLKIT, path=environ.get("PATH")) is None:
            problem = (
                "this VM's image has neither a container engine nor NVIDIA's Container Toolkit,"
                " which containers need to use the GPU; use a VM image that has both"
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
        if has_gpu():
            for command in _CONFIGURE_GPU:
                _run(command, PACKAGE, "ImageError", self._runner, self._workspace)


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
