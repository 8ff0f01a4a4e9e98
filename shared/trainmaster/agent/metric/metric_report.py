"""The measurements of a trial (one run of hyperparameter tuning) that runs, written to a guest
attribute of its VM.

The control plane reads the attribute about once a minute
(`trainmaster.flows.provisioning.measurements`). Writing needs no permission, and is done only if
the program has reported something new: a program that reports a thousand steps per second costs one
write per `INTERVAL_S`. docs/interfaces.md, section 3, has the format.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import NoReturn

from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.metric.trial_metric import EARLIER_MAX, TrialMetric
from trainmaster.agent.model.results import Measurement
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.reporting.serial_console import Console, Loss, Stream

PATH = "instance/guest-attributes/trainmaster/metric"
INTERVAL_S = 5.0
MEASUREMENTS_MAX = 50
"""Measurements of one report, the latest ones: more than the control plane stores of one trial."""


class MetricReport:
    """The reports of one VM. Start `run` in a thread of its own."""

    def __init__(
        self,
        metric: TrialMetric,
        running: Callable[[], IncarnationKey | None],
        metadata: MetadataServer,
        console: Console,
        tenure: int = 1,
    ) -> None:
        """`running`: returns the incarnation (execution of the program) that was started last;
        called in another thread. `tenure`: number of the job among those that have used this VM,
        from 1. The control plane tells by it what an earlier trial has written.
        """
        self._metric = metric
        self._running = running
        self._metadata = metadata
        self._console = console
        self._tenure_field = {"tenure": tenure} if tenure > 1 else {}
        self._written = ""
        self._problem = ""
        """Why a write failed last; empty: none did."""
        self._lock = threading.Lock()
        self._read: set[Measurement] = set()
        """Measurements that the program had reported when they were read last."""
        self._unwritten: set[Measurement] = set()
        """Measurements that the program has reported since the last write."""
        self._not_finite: set[tuple[int, int]] = set()
        """Records without a finite number at the last count."""

    def run(self) -> NoReturn:
        """Write new measurements without end, in its own thread."""
        while True:
            time.sleep(INTERVAL_S)
            self.write_new()

    def write_new(self) -> None:
        """Write the measurements if they have changed.

        An image or an organization may forbid guest attributes: that is reported once, and the exit
        event still contains the final measurement.
        """
        key = self._running()
        if key is None:
            return
        self._metric.update(key)  # may read from Cloud Storage
        measurements = self._look(key)[-MEASUREMENTS_MAX:]
        if not measurements:
            return
        points = [[measurement.step, measurement.value] for measurement in measurements]
        report = {"attempt": key.attempt, **self._tenure_field, "measurements": points}
        text = json.dumps(report, separators=(",", ":"))
        if text == self._written:
            return
        try:
            self._metadata.put(PATH, text)
        except HttpError as error:
            if not self._problem:
                self._console.log(
                    f"The measurements of the trial cannot be written: {error}",
                    Stream.AGENT_WARNING,
                )
            self._problem = " ".join(str(error).split())
            return
        with self._lock:
            self._unwritten -= set(measurements)
        self._written = text

    def count_missing(self) -> None:
        """Log how many measurements arrive neither by a write nor with the exit event, and how many
        are no finite number. Call it at the end of a program, in any thread. It does not wait for
        the network.

        Measurements that the program's file dropped between two reads are not known.
        """
        key = self._running()
        if key is None:
            return
        reported = self._look(key)
        in_exit_event = reported[-EARLIER_MAX - 1 :]
        with self._lock:
            missing = self._unwritten - set(in_exit_event)
            self._unwritten.clear()
        self._log_missing(len(missing), self._why_missing())
        not_finite = self._metric.not_finite(key)
        self._log_missing(len(not_finite - self._not_finite), "they are no finite numbers")
        self._not_finite = not_finite

    def _log_missing(self, count: int, why: str) -> None:
        if count:
            text = f"Missing measurements of the trial: {count}, because {why}."
            self._console.log_loss(Loss.MEASUREMENTS, count, text)

    def _look(self, key: IncarnationKey) -> list[Measurement]:
        """Return what the program has reported, as far as it was read, and note what is new."""
        reported = self._metric.read_reported(key)
        with self._lock:
            self._unwritten |= set(reported) - self._read
            self._read = set(reported)
        return reported

    def _why_missing(self) -> str:
        if self._problem:
            return f"they could not be written: {self._problem}"
        return f"at most {MEASUREMENTS_MAX} are sent every {INTERVAL_S:g} s"
