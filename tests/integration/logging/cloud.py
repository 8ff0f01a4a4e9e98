"""The Logging emulator in one process, for tests: behind a port, or called directly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from werkzeug.test import Client

from emulators.logging.entries import Entries
from emulators.logging.server import LoggingServer, listen
from tests.support.serving import serving

PROJECT = "my-project"
LOG = f"projects/{PROJECT}/logs/trainmaster"
START_NS = 1_795_230_000 * 10**9


class Cloud:
    """`write` and `read` raise AssertionError with what the emulator answered."""

    def __init__(
        self, folder: Path, refused: frozenset[str] = frozenset(), clock_ns: Callable[[], int] = lambda: START_NS
    ) -> None:
        self.entries = Entries(folder / "entries.sqlite")
        self.server = LoggingServer(self.entries, refused, clock_ns)
        self._client = Client(self.server)

    def post(self, call: str, body: object) -> tuple[int, dict[str, Any]]:
        answer = self._client.post(f"/v2/entries:{call}", data=json.dumps(body), content_type="application/json")
        return answer.status_code, json.loads(answer.get_data(as_text=True))

    def write(self, *entries: dict[str, Any], **request: object) -> None:
        status, said = self.post("write", {"logName": LOG, "entries": entries, **request})
        assert status == 200, said

    def read(self, filter: str = "", **request: object) -> list[dict[str, Any]]:
        """Every page of it."""
        found: list[dict[str, Any]] = []
        body = {"resourceNames": [f"projects/{PROJECT}"], "filter": filter, "pageSize": 1000, **request}
        while True:
            status, said = self.post("list", body)
            assert status == 200, said
            found += said.get("entries", [])
            if "nextPageToken" not in said:
                return found
            body["pageToken"] = said["nextPageToken"]

    def messages(self, filter: str = "") -> list[str]:
        return [each.get("textPayload") or each["jsonPayload"]["message"] for each in self.read(filter)]

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Behind a loopback port, for the length of the block: `http://host:port`."""
        with serving(listen("127.0.0.1", 0, self.server)) as address:
            yield address


def an_entry(text: str, at_s: float = 0.0, **more: object) -> dict[str, Any]:
    """One line of worker 0, so many seconds after the start of the tests' time."""
    seconds, fraction = divmod(round(at_s * 10**9), 10**9)
    return {
        "timestamp": f"2026-11-21T03:{seconds // 60:02d}:{seconds % 60:02d}.{fraction:09d}Z",
        "resource": {
            "type": "ml_job",
            "labels": {"job_id": "digits_1", "task_name": "worker-replica-0", "project_id": PROJECT},
        },
        "textPayload": text,
        **more,
    }
