"""The Logging emulator inside the test process: called directly, or behind a port."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from werkzeug.test import Client

from tests.support.serving import serving
from trainmaster_emulators.logging.entries import Entries
from trainmaster_emulators.logging.server import LoggingServer
from trainmaster_emulators.rest.server import listen

PROJECT = "my-project"
LOG = f"projects/{PROJECT}/logs/trainmaster"
START_NS = 1_795_230_000 * 10**9  # 03:00 on 21 November 2026


class Cloud:
    """The emulator. `write` and `read` raise AssertionError with the response if it is an error."""

    def __init__(
        self,
        folder: Path,
        refused: frozenset[str] = frozenset(),
        clock_ns: Callable[[], int] = lambda: START_NS,
    ) -> None:
        self.entries = Entries(folder / "entries.sqlite")
        self.server = LoggingServer(self.entries, refused, clock_ns)
        self._client = Client(self.server)

    def post(self, call: str, body: object) -> tuple[int, dict[str, Any]]:
        response = self._client.post(
            f"/v2/entries:{call}", data=json.dumps(body), content_type="application/json"
        )
        return response.status_code, json.loads(response.get_data(as_text=True))

    def write(self, *entries: dict[str, Any], **request: object) -> None:
        status, body = self.post("write", {"logName": LOG, "entries": entries, **request})
        assert status == 200, body

    def read(self, filter: str = "", **request: object) -> list[dict[str, Any]]:
        """Return the matching entries of all pages."""
        entries: list[dict[str, Any]] = []
        body = {
            "resourceNames": [f"projects/{PROJECT}"],
            "filter": filter,
            "pageSize": 1000,
            **request,
        }
        while True:
            status, page = self.post("list", body)
            assert status == 200, page
            entries += page.get("entries", [])
            if "nextPageToken" not in page:
                return entries
            body["pageToken"] = page["nextPageToken"]

    def messages(self, filter: str = "") -> list[str]:
        return [
            entry.get("textPayload") or entry["jsonPayload"]["message"]
            for entry in self.read(filter)
        ]

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve on a loopback port during the block. The value is `http://host:port`."""
        with serving(listen("127.0.0.1", 0, self.server)) as address:
            yield address


def an_entry(text: str, at_s: float = 0.0, **more: object) -> dict[str, Any]:
    """Return one line of worker 0, `at_s` seconds after 03:00."""
    seconds, fraction = divmod(round(at_s * 10**9), 10**9)
    return {
        "timestamp": f"2026-11-21T03:{seconds // 60:02d}:{seconds % 60:02d}.{fraction:09d}Z",
        "resource": {
            "type": "ml_job",
            "labels": {
                "job_id": "digits_1",
                "task_name": "worker-replica-0",
                "project_id": PROJECT,
            },
        },
        "textPayload": text,
        **more,
    }
