"""What has to be there before the program starts: packages or an image, once per VM, and secrets, at each start."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from shared.agent.program.environment import task_line
from shared.agent.setup.container_image import Images
from shared.agent.setup.failure import Failure, Patience, SetupError, failed
from shared.agent.setup.gpu_driver import await_driver
from shared.agent.setup.packages import Packages
from shared.agent.setup.pip import Pip
from shared.agent.setup.runtime import Runtime
from shared.agent.setup.secret_values import Secrets
from shared.agent.setup.setup_processes import Children

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Union

    from shared.agent.control.vm_config import ReplicaId
    from shared.agent.control.workspace import Place
    from shared.agent.http.metadata_server import Google, Metadata
    from shared.agent.program.container_engine import Engine
    from shared.agent.setup.cloud_storage import Objects

    Prepared = Union[Mapping[str, str], Failure]
    """The values of the secrets, or why there is nothing to start."""


class Setup:
    def __init__(
        self,
        replica_id: ReplicaId,
        place: Place,
        *,
        metadata: Metadata,
        objects: Objects,
        secret_manager: Google,
        engine: Engine | None,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._seat = replica_id
        self._gang = replica_id.gang
        self._place = place
        self._pause = pause
        self._children = Children()
        patience = Patience(place.console, pause)
        pip = Pip(self._children, place)
        self._runtime = Runtime(pip, place)
        self._packages = Packages(objects, pip, place)
        self._secrets = Secrets(secret_manager, patience, self._gang.project)
        self._images = None if engine is None else Images(engine, metadata, self._children, place, pause)

    def prepare(self, *, is_installed: bool) -> Prepared:
        """For one start; in a thread of its own. May be repeated."""
        self._place.say(task_line(self._seat))
        try:
            await_driver(self._place, self._pause)
            if self._gang.container is not None:
                self._provide_image(self._gang.container.image)
            else:
                self._place.say(f"Running module {self._gang.python_module}.")
                if not is_installed:
                    self._runtime.install(self._gang.packages)
                    self._packages.install(self._gang.package_uris)
            return self._secrets.read(self._gang.secrets)
        except SetupError as error:
            return error.failure

    def cancel(self) -> None:
        """Ends what it runs, from another thread."""
        self._children.cancel()

    def _provide_image(self, image: str) -> None:
        if self._images is None:
            problem = (
                f"cannot run {image}: this VM has no container engine (docker or podman): use an image that has one"
            )
            raise failed("ImageError", problem, transient=False)
        self._images.provide(image)
