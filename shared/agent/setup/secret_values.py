"""The secrets of the program's environment: read at each start, kept in no file, and never printed."""

from __future__ import annotations

import base64
import binascii
import json
import re
from typing import TYPE_CHECKING

from shared.agent.setup.failure import failed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from shared.agent.http.metadata_server import Google
    from shared.agent.setup.failure import Patience

_NAME = re.compile(r"(?:projects/([^/]+)/)?(?:secrets/)?([^/]+)(?:/versions/([^/]+))?")


class Secrets:
    def __init__(self, manager: Google, patience: Patience, project: str) -> None:
        self._manager = manager
        self._patience = patience
        self._project = project

    def read(self, names: Mapping[str, str]) -> dict[str, str]:
        """From variables to the secrets' names, to their values. Raises SetupError."""
        return {variable: self._read(name) for variable, name in names.items()}

    def _read(self, name: str) -> str:
        path = version_path(name, self._project)
        if path is None:
            raise failed("SecretError", f"{name} is no name of a secret in Secret Manager", transient=False)
        answer = self._patience.ask(
            f"read the secret {path}", "SecretError", lambda: self._manager.call(f"/v1/{path}:access", timeout=10.0)
        )
        try:
            data = json.loads(answer.body)["payload"]["data"]
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, ValueError, KeyError, TypeError):  # its words could quote the value
            problem = f"the secret {path} is no text in UTF-8, which a variable has to be"
            raise failed("SecretError", problem, transient=False) from None


def version_path(name: str, project: str) -> str | None:
    """``S``, ``S/versions/V`` and full names alike; the version is the latest where none is named."""
    found = _NAME.fullmatch(name)
    if found is None:
        return None
    owner, secret, version = found.groups()
    return f"projects/{owner or project}/secrets/{secret}/versions/{version or 'latest'}"
