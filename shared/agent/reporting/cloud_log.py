"""A copy of the VM's console in Cloud Logging, entry by entry, under the labels of the old service.

    Console ── put ──► LogBuffer ── at most a second, or a full batch ──► entries:write, again until it is accepted

Training never waits for it: where Cloud Logging does not answer, the oldest lines are given up, and a line says how
many. Order and uniqueness are the entries' own: a replica's times strictly increase, an ``insertId`` is made of the VM,
the incarnation and that time, and a batch is repeated as it was.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from shared.agent.http.calls import HttpError, backoffs
from shared.agent.reporting.log_buffer import Line, LogBuffer, Lost
from shared.agent.reporting.log_lines import entry_of, rfc3339, shown
from shared.agent.reporting.serial_console import Stream

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import NoReturn

    from shared.agent.control.vm_config import Key, ReplicaId

LINGER_S = 1.0
WAIT_MAX_S = 30.0
TRIES_IN_SILENCE = 3
# What another try may answer otherwise: a token, a permission or an API that is not there yet, besides what passes.
MAY_CHANGE = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


@dataclass(frozen=True)
class Origin:
    """Whose lines these are. ``instance_id`` is the machine's: each host of a slice writes for itself."""

    log_name: str
    project: str
    region: str
    job_id: str
    task_name: str
    trial_id: str
    instance_id: str

    @staticmethod
    def of(replica_id: ReplicaId) -> Origin | None:
        """None where the gang's output is to be copied nowhere."""
        gang = replica_id.gang
        if gang.log is None:
            return None
        return Origin(
            log_name=gang.log["name"],
            project=gang.project,
            region=gang.log["region"],
            job_id=gang.environment.get("CLOUD_ML_JOB_ID", gang.job_id),
            task_name=f"{gang.log['task']}-{replica_id.index}",
            trial_id=gang.environment.get("CLOUD_ML_TRIAL_ID", ""),
            instance_id=replica_id.instance.instance_id,
        )

    @property
    def labels(self) -> dict[str, str]:
        labels = {
            "ml.googleapis.com/job_id": self.job_id,
            "ml.googleapis.com/task_name": self.task_name,
            "trainmaster/vm": self.instance_id,
        }
        if self.trial_id:
            labels["ml.googleapis.com/trial_id"] = self.trial_id
        return labels

    @property
    def resources(self) -> list[Mapping[str, object]]:
        """As the old service, which is what its clients filter by; and for projects that may not write that type, the
        one that Google has for everybody's tasks."""
        ours = {"project_id": self.project, "job_id": self.job_id, "task_name": self.task_name}
        anyones = {
            "project_id": self.project,
            "location": self.region,
            "namespace": "trainmaster",
            "job": self.job_id,
            "task_id": self.task_name,
        }
        return [{"type": "ml_job", "labels": ours}, {"type": "generic_task", "labels": anyones}]


class CloudLog:
    """The console's sink. ``post`` sends the body of one ``entries:write`` (raises HttpError); ``incarnation`` is the one that
    runs; ``say`` tells of errors elsewhere than here."""

    def __init__(
        self,
        origin: Origin,
        post: Callable[[bytes], object],
        buffer: LogBuffer,
        incarnation_key: Callable[[], Key | None],
        say: Callable[[str], None],
        linger_s: float = LINGER_S,
    ) -> None:
        self._origin = origin
        self._post = post
        self._buffer = buffer
        self._life = incarnation_key
        self._say = say
        self._linger_s = linger_s
        self._resources = origin.resources
        self._sending = False
        self._flushing = 0
        self._flushes = 0
        self._failures = 0

    def put(self, stream: Stream, lines: bytes) -> None:
        self._buffer.put(self._life(), stream, lines)

    def flush(self, timeout: float) -> None:
        """Sends at once what waits; returns when it is accepted, when a try has failed, or after the timeout."""
        changed = self._buffer.changed
        with changed:
            failures = self._failures
            self._flushing += 1
            self._flushes += 1
            changed.notify_all()
            changed.wait_for(
                lambda: (self._buffer.is_empty and not self._sending) or self._failures > failures, timeout
            )
            self._flushing -= 1

    def carry(self) -> NoReturn:
        """Runs in a thread of its own, for ever."""
        changed = self._buffer.changed
        while True:
            with changed:
                changed.wait_for(lambda: not self._buffer.is_empty)
                changed.wait_for(lambda: self._flushing or self._buffer.holds_a_batch, self._linger_s)
                lines, lost = self._buffer.take()
                self._sending = True
            self._deliver(lines, self._entries(lines, lost))
            with changed:
                self._sending = False
                changed.notify_all()

    def _deliver(self, lines: Sequence[Line], entries: Sequence[object]) -> None:
        """Until it is accepted, or refused for good: then it is lost, for it would be refused for ever."""
        for tries, wait in enumerate(backoffs(WAIT_MAX_S), start=1):
            flushes = self._flushes
            try:
                self._write(entries)
            except HttpError as error:
                if not error.transient and error.status not in MAY_CHANGE:
                    self._buffer.lose(len(lines), lines[0].at_ns, f"Cloud Logging refused them, or some ({error})")
                    return
                if tries == TRIES_IN_SILENCE:
                    self._say(f"Cloud Logging does not take the log ({error}); trying on.")
                self._pause(flushes, wait)
            else:
                return

    def _pause(self, flushes: int, wait: float) -> None:
        """After a failure. Who flushes gets one try at once."""
        with self._buffer.changed:
            self._failures += 1
            self._buffer.changed.notify_all()
            self._buffer.changed.wait_for(lambda: self._flushes > flushes, wait)

    def _write(self, entries: Sequence[object]) -> None:
        """Raises HttpError. A 400 may be about the resource type: whether it is, the other type tells, and stays."""
        try:
            self._post(self._body(entries))
        except HttpError as error:
            if error.status != HTTPStatus.BAD_REQUEST or len(self._resources) == 1:
                raise
            self._post(self._body(entries, self._resources[1]))
            del self._resources[0]

    def _body(self, entries: Sequence[object], resource: Mapping[str, object] | None = None) -> bytes:
        request = {
            "logName": self._origin.log_name,
            "resource": resource or self._resources[0],
            "labels": self._origin.labels,
            "partialSuccess": True,
            "entries": entries,
        }
        # A lone surrogate, which JSON may hold and UTF-8 may not, would spoil the whole request.
        return json.dumps(request, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    def _entries(self, lines: Sequence[Line], lost: Lost | None) -> list[object]:
        entries = [self._entry(line) for line in lines]
        if lost is not None:
            said = f"{lost.count} lines are missing here: {lost.why}."
            gap = self._entry(Line(lost.at_ns, self._life(), Stream.AGENT, said.encode()))
            return [{**gap, "severity": "WARNING"}, *entries]
        return [*entries]

    def _entry(self, line: Line) -> dict[str, object]:
        attempt, incarnation = line.incarnation_key or (0, 0)
        return {
            "timestamp": rfc3339(line.at_ns),
            "insertId": f"{self._origin.instance_id}-{attempt}-{incarnation}-{line.at_ns:020d}",
            "labels": {"trainmaster/attempt": str(attempt), "trainmaster/incarnation": str(incarnation)},
            **entry_of(shown(line.text.decode("utf-8", "replace")), line.stream),
        }
