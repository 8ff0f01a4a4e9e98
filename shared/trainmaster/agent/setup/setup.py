"""Preparing the program's start: packages, or an engine and an image, once per VM; /gcs and secrets
at each start.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Union

from trainmaster.agent.google_http.google_api import GoogleApi
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.results import SetupFailure
from trainmaster.agent.model.vm_config import AgentIdentity
from trainmaster.agent.program.container_engine import ContainerEngine
from trainmaster.agent.program.environment import task_line
from trainmaster.agent.setup.cancellable_runner import CancellableRunner
from trainmaster.agent.setup.cloud_storage import StorageReader
from trainmaster.agent.setup.container_image import ImagePuller
from trainmaster.agent.setup.engine_installation import EngineInstallation
from trainmaster.agent.setup.engine_shutdown import stop_engine_last
from trainmaster.agent.setup.gcs_mount import GcsMount
from trainmaster.agent.setup.gpu_driver import wait_for_driver
from trainmaster.agent.setup.job_packages import JobPackages
from trainmaster.agent.setup.package_index import PackageIndex
from trainmaster.agent.setup.package_layers import PackageLayers
from trainmaster.agent.setup.pip import Pip
from trainmaster.agent.setup.preflight import Preflight
from trainmaster.agent.setup.runtime_packages import RuntimePackages
from trainmaster.agent.setup.secret_values import SecretReader
from trainmaster.agent.setup.setup_errors import Retrier, SetupError
from trainmaster.agent.workspace import Workspace

if TYPE_CHECKING:
    SetupResult = Union[Mapping[str, str], SetupFailure]
    """The values of the secrets by variable, or why the program cannot be started."""


class Setup:
    """What must be done before a program can start. The agent calls `prepare` for each start."""

    def __init__(  # noqa: PLR0913 - the parts that it uses
        self,
        identity: AgentIdentity,
        workspace: Workspace,
        *,
        metadata: MetadataServer,
        storage: StorageReader,
        secret_manager: GoogleApi,
        find_engine: Callable[[], ContainerEngine | None],
        pause: Callable[[float], object] = time.sleep,
        leftover: str = "",
    ) -> None:
        """`leftover`: what the VM's last job has left and cannot be removed."""
        self._identity = identity
        self._config = identity.config
        self._workspace = workspace
        self._pause = pause
        self._runner = CancellableRunner()
        pip = Pip(
            self._runner, workspace, PackageIndex(metadata, Retrier(workspace.console, pause))
        )
        self._runtime_packages = RuntimePackages(pip, workspace)
        self._job_packages = JobPackages(storage, pip, workspace)
        self._secrets = SecretReader(
            secret_manager, Retrier(workspace.console, pause), self._config.project
        )
        self._metadata = metadata
        self._find_engine = find_engine
        self.gcs = GcsMount(self._config, workspace, metadata, storage, self._runner)
        """What the program finds below /gcs."""
        self.preflight = Preflight(self._config, workspace, metadata, pause, leftover=leftover)

    def prepare(self, *, is_installed: bool) -> SetupResult:
        """Prepare one start; return the secrets of the program, or why it cannot start.

        `is_installed`: the packages were installed before, on this VM for this job. It may be
        repeated. It takes long, so call it on a thread of its own.
        """
        self._workspace.log(task_line(self._identity))
        try:
            wait_for_driver(self._workspace, self._pause)
            self.preflight.start(is_first=not is_installed)
            if self._config.container is not None:
                self._ensure_image(self._config.container.image)
            else:
                self._workspace.log(f"Running module {self._config.python_module}.")
                self._install_packages(is_installed=is_installed)
            self.gcs.mount()
            result: SetupResult = self._secrets.read(self._config.secrets)
        except SetupError as error:
            result = error.failure
        # A fault of the machine explains what else has failed.
        return self.preflight.failure() or result

    def cancel(self) -> None:
        """End the programs that `prepare` runs. May be called from any thread."""
        self._runner.cancel()

    def _install_packages(self, *, is_installed: bool) -> None:
        """Install the packages, in layers if another job may take this VM."""
        config = self._config
        work = self._workspace.work
        layers = None
        if config.tenure_key:
            layers = PackageLayers(work, config.packages, config.package_uris)
        if is_installed:
            if layers is not None:
                layers.enter()
            return

        def install_runtime() -> None:
            self._runtime_packages.install(config.packages)

        def install_packages() -> None:
            self._job_packages.install(config.package_uris)

        if layers is not None:
            layers.install(install_runtime, install_packages)
        else:
            install_runtime()
            install_packages()

    def _ensure_image(self, image: str) -> None:
        engine = self._find_engine()
        if engine is None:
            installation = EngineInstallation(self._runner, self._workspace, self._pause)
            engine = installation.run(self._identity.instance.name)
        stop_engine_last(self._workspace)
        puller = ImagePuller(
            engine,
            self._metadata,
            self._runner,
            self._workspace,
            self._pause,
            is_first_job=self._config.tenure == 1,
        )
        puller.ensure_present(image)
