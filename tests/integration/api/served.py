"""The API on a port, for clients that are programs, and the real gcloud as such a client."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from werkzeug.serving import make_server

from emulators.browser_guard import BrowserGuard
from tests.integration.api.client import OWNER, PROJECT
from tests.support.serving import serving as served


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve the WSGI application during the block; yield its address, `http://127.0.0.1:PORT`.

    As on the local stack, requests of web pages are refused, so tests show that no client counts as a web page.
    """
    with served(make_server("127.0.0.1", 0, BrowserGuard(app), threaded=True)) as address:
        yield address


@dataclass(frozen=True)
class Gcloud:
    """The real gcloud with its own configuration; it calls both APIs at `endpoint`."""

    endpoint: str
    folder: Path

    def run(self, *arguments: str, token: str = OWNER) -> subprocess.CompletedProcess[str]:
        token_file = self.folder / "token"
        token_file.write_text(token + "\n")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("CLOUDSDK_", "GOOGLE_"))}
        environment = {
            **kept,
            "HOME": str(self.folder),
            "CLOUDSDK_CONFIG": str(self.folder / "config"),
            "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(token_file),
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_ML": f"{self.endpoint}/",
            "CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM": f"{self.endpoint}/",
            "CLOUDSDK_CORE_PROJECT": PROJECT,
            "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
            "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
            "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1",
        }
        argv = ["gcloud", *arguments]
        return subprocess.run(
            argv, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120, check=False
        )
