"""A CloudLog that sends to the Logging emulator, and fails on request."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.integration.logging.cloud import LOG, PROJECT, START_NS, Cloud
from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.reporting.cloud_log import CloudLog
from trainmaster.agent.reporting.log_buffer import LogBuffer
from trainmaster.agent.reporting.log_origin import LogOrigin
from trainmaster.agent.reporting.serial_console import Loss, Stream

FLUSH_S = 600.0
"""Time limit of flushes, which end long before, also on a busy machine."""
NUMBERED = re.compile(r"line \d+$")
ORIGIN = LogOrigin(
    LOG, PROJECT, "us-central1", "digits_1", "worker-replica-1", trial_id="", instance_id="4711"
)


def run_in_daemon(work: Callable[[], None]) -> None:
    threading.Thread(target=work, daemon=True).start()


def account(entries: Iterable[Mapping[str, Any]]) -> tuple[int, int]:
    """Return how many lines `line NUMBER` the entries hold, and how many they count as missing."""
    stored = missing = 0
    for entry in entries:
        missing += int(entry["labels"].get(Loss.LINES.value, 0))
        stored += NUMBERED.match(entry["jsonPayload"]["message"]) is not None
    return stored, missing


@dataclass
class Shipper:
    """A CloudLog on the emulator.

    `failures` are raised, or called, instead of the next calls; the last one stays.
    """

    cloud: Cloud
    linger_s: float = 0.01
    failures: list[Exception | Callable[[bytes], None]] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    buffer: LogBuffer = field(default_factory=lambda: LogBuffer(lambda: START_NS))

    def __post_init__(self) -> None:
        self.log = CloudLog(
            ORIGIN,
            self.post,
            self.buffer,
            lambda: IncarnationKey(2, 3),
            self.problems.append,
            self.linger_s,
        )
        self.log.start(run_in_daemon)

    def post(self, body: bytes) -> None:
        """Take a request of the agent. The next one of `failures`, if any, happens first."""
        self.bodies.append(body)
        if self.failures:
            failure = self.failures[0] if len(self.failures) == 1 else self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            self.failures.clear()
            failure(body)
        self.send(body)

    def send(self, body: bytes) -> None:
        status, answer = self.cloud.post("write", json.loads(body))
        if status != 200:
            raise HttpError(status, answer["error"]["message"], json.dumps(answer))

    def print(self, text: str, stream: Stream = Stream.STDOUT) -> None:
        self.log.put(stream, text.encode())

    def entries(self, *texts: str, stream: Stream = Stream.STDOUT) -> list[dict[str, Any]]:
        for text in texts:
            self.print(f"{text}\n", stream)
        self.log.flush(FLUSH_S)
        return self.cloud.read()
