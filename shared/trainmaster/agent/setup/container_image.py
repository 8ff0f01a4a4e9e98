"""Pulling the image of the user's container before the program's first start."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.program.container_engine import (
    ContainerEngine,
    EngineError,
    last_lines,
    registry_of,
)
from trainmaster.agent.program.program import Program
from trainmaster.agent.setup.cancellable_runner import CancellableRunner
from trainmaster.agent.setup.setup_errors import new_setup_error, retry_setup
from trainmaster.agent.workspace import Workspace

_PERMANENT = re.compile(
    r"manifest unknown|name unknown|not found|no such manifest|does not exist"
    r"|access denied|denied:|unauthorized|forbidden"
    r"|no matching manifest|invalid reference format|no basic auth credentials",
    re.IGNORECASE,
)
"""Words of a registry or an engine for an image that does not exist or may not be pulled."""
_TRANSIENT = re.compile(
    r"toomanyrequests|no such host|timeout|timed out|connection re|cannot connect|temporar"
    r"|\b50\d\b",
    re.IGNORECASE,
)
"""Words for a registry that cannot be reached now. They win over those above."""


class ImagePuller:
    """Pulls images, with the VM's own identity if the registry is Google's.

    An image that is on the VM is not pulled again, so that all incarnations of a replica
    (executions of its program) on one VM run the same image. On a VM that another job has used, an
    image that the job names without a digest is pulled once more: its tag may name another image by
    now.
    """

    def __init__(
        self,
        engine: ContainerEngine,
        metadata: MetadataServer,
        runner: CancellableRunner,
        workspace: Workspace,
        pause: Callable[[float], object] = time.sleep,
        *,
        is_first_job: bool = True,
    ) -> None:
        """`is_first_job`: whether no other job has had this VM."""
        self._is_first_job = is_first_job
        self._engine = engine
        self._metadata = metadata
        self._runner = runner
        self._workspace = workspace
        self._pause = pause

    def ensure_present(self, image: str) -> None:
        """Pull the image if it is missing. Raises SetupError with the registry's message."""
        retry_setup(lambda: self._pull_if_missing(image), self._workspace, self._pause)

    def _pull_if_missing(self, image: str) -> None:
        try:
            if self._may_be_outdated(image) or not self._engine.has_image(image):
                self._pull(image)
                self._pulled_file.write_text(image, encoding="utf-8")
        except (EngineError, HttpError) as error:
            raise new_setup_error(
                "ImageError", f"cannot pull {image}: {error}", transient=True
            ) from error

    def _may_be_outdated(self, image: str) -> bool:
        if self._is_first_job or "@" in image:
            return False
        file = self._pulled_file
        return not file.exists() or file.read_text(encoding="utf-8") != image

    @property
    def _pulled_file(self) -> Path:
        """File with the image that this job has pulled. The next job's agent removes it."""
        return self._workspace.work / "pulled-image"

    def _pull(self, image: str) -> None:
        workspace = self._workspace
        credentials = self._write_credentials(image)
        command = self._engine.pull_command(image, credentials)
        workspace.log(f"Pulling the image: {image}")
        try:
            pull = self._runner.run(
                lambda: Program(command, workspace, env=workspace.environ, cwd=workspace.work)
            )
        finally:
            if credentials is not None:
                shutil.rmtree(credentials, ignore_errors=True)
        if pull.exit_status != 0:
            text = last_lines(pull)
            is_named_permanent = _PERMANENT.search(text) and not _TRANSIENT.search(text)
            transient = pull.signal is not None or not is_named_permanent
            message = f"cannot pull {image}: {text}"
            raise new_setup_error(
                "ImageError", message, transient=transient, exit_status=pull.exit_status
            )

    def _write_credentials(self, image: str) -> Path | None:
        """Write the VM's token for the engine, and return the folder, which must be removed after
        use.

        None if the registry is not Google's or the VM has no account.
        """
        registry = registry_of(image)
        token = self._metadata.access_token() if accepts_vm_token(registry) else None
        if registry is None or token is None:
            return None
        folder = self._workspace.work / "credentials"
        write_credentials(folder, registry, token)
        return folder


def accepts_vm_token(registry: str | None) -> bool:
    """Return whether the registry is Google's: Artifact Registry, or a domain of the former
    Container Registry.
    """
    return registry is not None and (
        registry == "gcr.io" or registry.endswith((".gcr.io", ".pkg.dev"))
    )


def write_credentials(folder: Path, registry: str, token: str) -> None:
    """Write a docker config.json that only this user can read.

    Source: Artifact Registry's manual, authentication with an access token.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    auth = base64.b64encode(f"oauth2accesstoken:{token}".encode()).decode()
    file = os.open(folder / "config.json", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(file, "w") as config:
        json.dump({"auths": {registry: {"auth": auth}}}, config)
