"""The API on a port, for clients that are programs, and the real gcloud as such a client."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from werkzeug.serving import make_server

from tests.integration.api.client import OWNER, PROJECT
from tests.support.gcloud import gcloud_environment, run_gcloud
from tests.support.serving import serving as served
from trainmaster_emulators.browser_guard import BrowserGuard


@contextmanager
def serving(app: Any) -> Iterator[str]:
    """Serve the WSGI application during the block; yield its address, `http://127.0.0.1:PORT`.

    As on the local stack, requests of web pages are refused, so tests show that no client counts as
    a web page.
    """
    with served(make_server("127.0.0.1", 0, BrowserGuard(app), threaded=True)) as address:
        yield address


@dataclass(frozen=True)
class Gcloud:
    """The real gcloud with its own configuration; it calls both APIs at `endpoint`."""

    endpoint: str
    folder: Path

    def run(self, *arguments: str, token: str = OWNER) -> subprocess.CompletedProcess[str]:
        endpoints = {"ml": self.endpoint, "aiplatform": self.endpoint}
        environment = {
            **gcloud_environment(self.folder, PROJECT, endpoints, token),
            "HOME": str(self.folder),
        }
        return run_gcloud(*arguments, environment=environment, folder=self.folder)
