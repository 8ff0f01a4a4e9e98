"""A copy of the VM's console in Cloud Logging, with the labels that AI Platform Training used.

    Console ── put ──► LogBuffer ── after a second, or a full batch ──► entries:write,
                                                                   repeated until it is accepted

Training never waits for the copy. If Cloud Logging does not answer, the oldest lines are dropped,
and a log entry states their number. The entries stay in order and are stored once: the times of a
replica strictly increase, an ``insertId`` consists of the VM, the incarnation and that time, and a
batch is repeated unchanged.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import NoReturn

from trainmaster.agent.google_http.http_call import HttpError, backoffs
from trainmaster.agent.model.vm_config import AgentIdentity, IncarnationKey
from trainmaster.agent.reporting.log_buffer import Line, LogBuffer, LostLines
from trainmaster.agent.reporting.log_entry import entry_of, rfc3339
from trainmaster.agent.reporting.serial_console import Stream

LINGER_S = 1.0  # how long a batch that is not full waits for more lines
WAIT_MAX_S = 30.0
TRIES_BEFORE_WARNING = 3
# Errors that may end later, besides transient ones: a token, a permission or an API that is not
# there yet.
RETRIED_STATUSES = (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND)


@dataclass(frozen=True)
class LogOrigin:
    """The replica whose lines these are."""

    log_name: str
    """Full name of the log: ``projects/PROJECT/logs/LOG``."""
    project: str
    region: str
    job_id: str
    task_name: str
    """Role and task index, as AI Platform Training wrote them: ``worker-replica-1``."""
    trial_id: str
    """Empty if the job is not a trial."""
    instance_id: str
    """Id of the machine: each host of a TPU slice writes its own lines."""

    @staticmethod
    def of(identity: AgentIdentity) -> LogOrigin | None:
        """Return the origin of this replica's lines; None if its output is not copied."""
        config = identity.config
        if config.log is None:
            return None
        return LogOrigin(
            log_name=config.log["name"],
            project=config.project,
            region=config.log["region"],
            job_id=config.environment.get("CLOUD_ML_JOB_ID", config.job_id),
            task_name=f"{config.log['task']}-{identity.index}",
            trial_id=config.environment.get("CLOUD_ML_TRIAL_ID", ""),
            instance_id=identity.instance.instance_id,
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
        """Monitored resources, the preferred one first.

        Clients of AI Platform Training filter by its type, `ml_job`. Projects that may not write
        that type get `generic_task`, which any project may write.
        """
        ml_job = {"project_id": self.project, "job_id": self.job_id, "task_name": self.task_name}
        generic_task = {
            "project_id": self.project,
            "location": self.region,
            "namespace": self.log_name.rpartition("/")[2],
            "job": self.job_id,
            "task_id": self.task_name,
        }
        return [
            {"type": "ml_job", "labels": ml_job},
            {"type": "generic_task", "labels": generic_task},
        ]


class CloudLog:
    """The console's sink in Cloud Logging."""

    def __init__(
        self,
        origin: LogOrigin,
        post: Callable[[bytes], object],
        buffer: LogBuffer,
        incarnation_key: Callable[[], IncarnationKey | None],
        report_problem: Callable[[str], None],
        linger_s: float = LINGER_S,
    ) -> None:
        """`post` sends the body of one ``entries:write`` and raises HttpError.

        `incarnation_key` returns the incarnation that runs. `report_problem` takes messages about
        this log; they must not be copied to it.
        """
        self._origin = origin
        self._post = post
        self._buffer = buffer
        self._incarnation_key = incarnation_key
        self._report_problem = report_problem
        self._linger_s = linger_s
        self._resources = origin.resources
        self._sending = False
        self._flushing = 0  # calls of `flush` that wait
        self._flushes = 0  # calls of `flush` so far
        self._failures = 0  # tries that failed so far

    def put(self, stream: Stream, lines: bytes) -> None:
        self._buffer.put(self._incarnation_key(), stream, lines)

    def flush(self, timeout: float) -> None:
        """Send the queued lines now.

        Return when they are accepted, when a try has failed, or after the timeout.
        """
        changed = self._buffer.changed
        with changed:
            failures_before = self._failures

            def is_over() -> bool:
                is_accepted = self._buffer.is_empty and not self._sending
                return is_accepted or self._failures > failures_before

            self._flushing += 1
            self._flushes += 1
            changed.notify_all()
            changed.wait_for(is_over, timeout)
            self._flushing -= 1

    def run(self) -> NoReturn:
        """Send without end, in its own thread."""
        changed = self._buffer.changed
        while True:
            with changed:
                changed.wait_for(lambda: not self._buffer.is_empty)
                changed.wait_for(
                    lambda: self._flushing or self._buffer.has_full_batch, self._linger_s
                )
                lines, lost = self._buffer.take()
                self._sending = True
            self._deliver(lines, self._entries(lines, lost))
            with changed:
                self._sending = False
                changed.notify_all()

    def _deliver(self, lines: Sequence[Line], entries: Sequence[object]) -> None:
        """Repeat until the batch is accepted. A batch that can never be accepted is dropped."""
        for tries, wait in enumerate(backoffs(WAIT_MAX_S), start=1):
            flushes = self._flushes
            try:
                self._write(entries)
            except HttpError as error:
                if not error.transient and error.status not in RETRIED_STATUSES:
                    why = f"Cloud Logging rejected some or all of them ({error})"
                    self._buffer.record_loss(len(lines), lines[0].at_ns, why)
                    return
                if tries == TRIES_BEFORE_WARNING:
                    self._report_problem(
                        f"Cloud Logging does not accept the log ({error}); still trying."
                    )
                self._wait_after_failure(flushes, wait)
            else:
                return

    def _wait_after_failure(self, flushes: int, wait: float) -> None:
        """Wait `wait` seconds, or until the next call of `flush`, which gets one try at once.

        `flushes`: calls of `flush` before the try that failed.
        """
        with self._buffer.changed:
            self._failures += 1
            self._buffer.changed.notify_all()
            self._buffer.changed.wait_for(lambda: self._flushes > flushes, wait)

    def _write(self, entries: Sequence[object]) -> None:
        """Send one batch. Raises HttpError.

        A 400 may be about the resource type. If the other type is accepted, it is used from then
        on.
        """
        try:
            self._post(self._body(entries))
        except HttpError as error:
            if error.status != HTTPStatus.BAD_REQUEST or len(self._resources) == 1:
                raise
            self._post(self._body(entries, self._resources[1]))
            del self._resources[0]

    def _body(
        self, entries: Sequence[object], resource: Mapping[str, object] | None = None
    ) -> bytes:
        request = {
            "logName": self._origin.log_name,
            "resource": resource or self._resources[0],
            "labels": self._origin.labels,
            "partialSuccess": True,
            "entries": entries,
        }
        text = json.dumps(request, ensure_ascii=False, separators=(",", ":"))
        # JSON may contain a lone surrogate, but UTF-8 may not: it would make the whole request
        # invalid.
        return text.encode("utf-8", "replace")

    def _entries(self, lines: Sequence[Line], lost: LostLines | None) -> list[object]:
        entries: list[object] = [self._entry(line) for line in lines]
        if lost is None:
            return entries
        text = f"{lost.count} lines are missing here: {lost.why}."
        gap = self._entry(Line(lost.at_ns, self._incarnation_key(), Stream.AGENT, text.encode()))
        return [{**gap, "severity": "WARNING"}, *entries]

    def _entry(self, line: Line) -> dict[str, object]:
        attempt, incarnation = line.incarnation_key or (0, 0)
        return {
            "timestamp": rfc3339(line.at_ns),
            "insertId": f"{self._origin.instance_id}-{attempt}-{incarnation}-{line.at_ns:020d}",
            "labels": {
                "trainmaster/attempt": str(attempt),
                "trainmaster/incarnation": str(incarnation),
            },
            **entry_of(line.text.decode("utf-8", "replace"), line.stream),
        }
