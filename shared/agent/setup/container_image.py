"""The image of the user's container: brought onto the VM before the program's first start."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import time
from typing import TYPE_CHECKING

from shared.agent.http.calls import HttpError, backoffs
from shared.agent.program.container_engine import EngineError, registry_of
from shared.agent.program.program import Program
from shared.agent.setup.failure import TRIES, SetupError, failed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from shared.agent.control.workspace import Place
    from shared.agent.http.metadata_server import Metadata
    from shared.agent.program.container_engine import Engine
    from shared.agent.program.program import Ended
    from shared.agent.setup.setup_processes import Children

# A registry's or the engine's words for an image that is not to be had, as against one that cannot be reached now.
_REFUSED = re.compile(
    r"manifest unknown|name unknown|not found|no such manifest|does not exist|access denied|denied:|unauthorized"
    r"|forbidden|no matching manifest|invalid reference format|no basic auth credentials",
    re.IGNORECASE,
)
_PASSING = re.compile(
    r"toomanyrequests|no such host|timeout|timed out|connection re|cannot connect|temporar|\b50\d\b", re.IGNORECASE
)
WORDS_MAX = 3  # lines of what the engine said last


class Images:
    """Pulls with the VM's own identity where the registry is Google's. An image that is there is not pulled again, so
    that all incarnations of a replica on one VM run the same one."""

    def __init__(
        self,
        engine: Engine,
        metadata: Metadata,
        children: Children,
        place: Place,
        pause: Callable[[float], object] = time.sleep,
    ) -> None:
        self._engine = engine
        self._metadata = metadata
        self._children = children
        self._place = place
        self._pause = pause

    def provide(self, image: str) -> None:
        """Raises SetupError, with the registry's words."""
        waits = backoffs(8.0)
        for left in range(TRIES - 1, -1, -1):
            try:
                if not self._engine.has(image):
                    self._pull(image)
            except (EngineError, HttpError) as error:
                problem = failed("ImageError", f"cannot pull {image}: {error}", transient=True)
            except SetupError as error:
                problem = error
            else:
                return
            if problem.failure.cause == "install" or not left:
                raise problem
            self._place.say(f"{problem}; trying again.")
            self._pause(next(waits))

    def _pull(self, image: str) -> None:
        place = self._place
        credentials = self._credentials(image)
        command = self._engine.pull_command(image, credentials)
        self._place.say(f"Pulling the image: {image}")
        try:
            ended = self._children.run(lambda: Program(command, place, env=place.environ, cwd=place.work))
        finally:
            if credentials is not None:
                shutil.rmtree(credentials, ignore_errors=True)
        if ended.exit_status != 0:
            words = last_words(ended)
            transient = ended.signal is not None or bool(_PASSING.search(words)) or not _REFUSED.search(words)
            problem = f"cannot pull {image}: {words}"
            raise failed("ImageError", problem, transient=transient, exit_status=ended.exit_status, tail=ended.tail)

    def _credentials(self, image: str) -> Path | None:
        """A folder with the VM's token in the engine's form, to be removed after use; None where none is needed."""
        registry = registry_of(image)
        token = self._metadata.access_token() if takes_our_token(registry) else None
        if registry is None or token is None:
            return None
        folder = self._place.work / "credentials"
        write_credentials(folder, registry, token)
        return folder


def last_words(ended: Ended) -> str:
    """What the engine's command line said at its end."""
    lines = [line.strip() for line in ended.tail.splitlines() if line.strip()]
    return " ".join(lines[-WORDS_MAX:]) or f"the engine ended with status {ended.exit_status}"


def takes_our_token(registry: str | None) -> bool:
    """Artifact Registry, and what is left of Container Registry."""
    return registry is not None and (registry == "gcr.io" or registry.endswith((".gcr.io", ".pkg.dev")))


def write_credentials(folder: Path, registry: str, token: str) -> None:
    """For the engine's eyes only. Source: Artifact Registry's manual, authentication with an access token."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    auth = base64.b64encode(f"oauth2accesstoken:{token}".encode()).decode()
    file = os.open(folder / "config.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(file, "w") as config:
        json.dump({"auths": {registry: {"auth": auth}}}, config)
