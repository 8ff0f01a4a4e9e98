"""The secrets in the program's environment: read at each start, never stored in a file, never
printed.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping

from trainmaster.agent.google_http.google_api import GoogleApi
from trainmaster.agent.setup.setup_errors import Retrier, new_setup_error

_NAME = re.compile(r"(?:projects/([^/]+)/)?(?:secrets/)?([^/]+)(?:/versions/([^/]+))?")
READ_S = 10.0  # timeout of one call


class SecretReader:
    """Reads secrets from Secret Manager, with the VM's own account."""

    def __init__(self, secret_manager: GoogleApi, retrier: Retrier, project: str) -> None:
        """`project`: for secrets whose names contain none."""
        self._secret_manager = secret_manager
        self._retrier = retrier
        self._project = project

    def read(self, names: Mapping[str, str]) -> dict[str, str]:
        """Return the values of secrets by variable, from their names by variable.

        Raises SetupError.
        """
        return {variable: self._read(name) for variable, name in names.items()}

    def _read(self, name: str) -> str:
        path = version_path(name, self._project)
        if path is None:
            problem = f"{name} is not the name of a secret in Secret Manager"
            raise new_setup_error("SecretError", problem, transient=False)
        response = self._retrier.call(
            f"read the secret {path}",
            "SecretError",
            lambda: self._secret_manager.call(f"/v1/{path}:access", timeout=READ_S),
        )
        try:
            data = json.loads(response.body)["payload"]["data"]
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, ValueError, KeyError, TypeError):
            problem = f"the secret {path} is not text in UTF-8, as the value of a variable must be"
            # Not from the error, whose message could quote the value.
            raise new_setup_error("SecretError", problem, transient=False) from None


def version_path(name: str, project: str) -> str | None:
    """Return the full name of a secret's version; None if `name` is malformed.

    `name` is ``SECRET``, ``SECRET/versions/VERSION`` or a full name. The default version is the
    latest one.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    owner, secret, version = match.groups()
    return f"projects/{owner or project}/secrets/{secret}/versions/{version or 'latest'}"
