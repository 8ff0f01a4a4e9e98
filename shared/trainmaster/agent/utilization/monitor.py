"""The use of this machine's processors, memory, GPUs and network, sampled every 15 seconds and sent
to Cloud Monitoring every minute, with the program's progress.

    sample ── sample ── sample ── sample ──► means ──► ReportQueue ──► timeSeries.create
      15 s      15 s      15 s

It has its own thread. A report that could not be sent is sent again with the next one. Training
never waits for it and never fails for it.
docs/decisions/0070-resource-metrics.md.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from trainmaster.agent.control.run_state import RunState
from trainmaster.agent.control.stall_watch import Quiet
from trainmaster.agent.google_http.google_api import GoogleApi
from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.vm_config import AgentIdentity, IncarnationKey
from trainmaster.agent.progress.collector import ProgressCollector, ProgressPoint
from trainmaster.agent.reporting.serial_console import Console, Loss
from trainmaster.agent.utilization.averages import Averages, Sample
from trainmaster.agent.utilization.gpus import GpuReading, Gpus
from trainmaster.agent.utilization.machine import MachineReading, find_machine
from trainmaster.agent.utilization.network import Traffic, read_traffic
from trainmaster.agent.utilization.report_queue import ReportQueue
from trainmaster.agent.utilization.time_series import SeriesOrigin, alive_body, request_body

KEY = "instance/attributes/trainmaster-metrics"
"""Seconds between two reports; no such entry: metrics are off."""
SAMPLE_S = 15.0  # longest time between two samples
SAMPLES_PER_REPORT_MIN = 4
START_POLL_S = 1.0  # time between two looks whether a first program has started
WRITE_S = 10.0  # timeout of one write
DISTANCE_MIN_S = 6.0
"""Shortest time between two points of a series.

Source: Cloud Monitoring accepts one every 5 seconds.
"""
LAST_REPORT_S = DISTANCE_MIN_S + 3.0
"""Longest time from the end of the program to its last report: the VM may be shutting down."""
UNREADABLE = (OSError, ValueError, KeyError, IndexError)
"""Raised for files of the kernel that are missing or have another form."""


@dataclass(frozen=True)
class Sources:
    """The readings that make up a sample."""

    machine: Callable[[], MachineReading]
    gpus: Callable[[], Sequence[GpuReading]]
    traffic: Callable[[], Traffic] | None
    """None where the machine's traffic is not its own."""


def read_interval(metadata: MetadataServer) -> float | None:
    """Return the seconds between two reports; None if metrics are off.

    Raises HttpError or ValueError.
    """
    text = metadata.find(KEY)
    return None if text is None else float(text)


class UtilizationMonitor:
    """Samples and reports until the VM ends.

    Start `run` in a thread of its own. `finish_interval` and `await_last_report` may be called from
    any thread.
    """

    def __init__(
        self,
        origin: SeriesOrigin,
        sources: Sources,
        queue: ReportQueue,
        incarnation_key: Callable[[], IncarnationKey | None],
        log: Callable[[str], None],
        interval_s: float,
        progress: Callable[[], Sequence[ProgressPoint]] = tuple,
    ) -> None:
        """`queue` sends the reports.

        `incarnation_key` returns the incarnation (execution of the program) that was started last;
        nothing is measured before the first one. `interval_s`: time between two reports. `progress`
        returns the program's progress since its last call.
        """
        self._origin = origin
        self._sources = sources
        self._queue = queue
        self._incarnation_key = incarnation_key
        self._log = log
        self._interval_s = interval_s
        self._progress = progress
        self._find_quiet: Callable[[], Quiet | None] = lambda: None
        self._has_noted_quiet = False
        self._sample_s = min(SAMPLE_S, interval_s / SAMPLES_PER_REPORT_MIN)
        self._ended = threading.Event()
        self._is_complete = threading.Event()
        """Whether the report after the end of the last program was sent, or none is due."""
        self._is_complete.set()
        self.is_off = False
        """Whether it has ended: the machine cannot be read, or Cloud Monitoring refuses reports."""

    def finish_interval(self) -> None:
        """Send what was measured so far.

        Returns at once. Call it at the end of a program, because the VM may be deleted soon.
        """
        self._is_complete.clear()
        self._ended.set()

    def await_last_report(self) -> None:
        """Wait until the report after the program's end was sent. Call it before this process ends.

        The job may have been cancelled, so that no exit of the program has its last values.
        """
        if not self.is_off:
            self._is_complete.wait(LAST_REPORT_S)

    def run(self, find_quiet: Callable[[], Quiet | None] = lambda: None) -> None:
        """Measure and send until the VM ends, or until Cloud Monitoring refuses it.

        `find_quiet` returns how long the program has been quiet, if that may end it.

        An error in this code is reported on the console and turns metrics off: it must not end the
        training.
        """
        self._find_quiet = find_quiet
        try:
            while not self.is_off and self._incarnation_key() is None:
                # A program that starts and ends within this pause is not missed: its end sets
                # `_ended`, which `_measure` reads.
                time.sleep(START_POLL_S)
            self._measure()
        except UNREADABLE as error:
            self._log(f"Resource metrics are off: this machine's use cannot be read ({error!r}).")
        except Exception as error:  # noqa: BLE001 - reported; raised, it would end the agent
            self._log(f"Resource metrics are off because of an error: {error!r}")
        self.is_off = True
        self._is_complete.set()

    def _measure(self) -> None:
        """Sample and send without end; after the end of a program, send at once what was measured.

        At once: as soon as Cloud Monitoring accepts another point of the series.
        """
        start_ns = time.time_ns()
        first = self._sample()
        averages = Averages(first)
        reported_at = first.at
        program_ended = False
        while not self.is_off:
            wait_s = self._sample_s
            if program_ended:  # its last report must keep the distance from the one before
                wait_s = max(DISTANCE_MIN_S - (time.monotonic() - reported_at), 0.0)
            if self._ended.wait(wait_s):
                self._ended.clear()
                program_ended = True
            sample = self._sample()
            averages.add(sample)
            waited_s = sample.at - reported_at
            # A report may be half a sampling period early. After the next sample it would be late
            # by more than that.
            is_due = waited_s >= self._interval_s - self._sample_s / 2
            is_last_due = program_ended and waited_s >= DISTANCE_MIN_S
            if is_due or is_last_due:
                self._send(averages, start_ns)
                if program_ended:
                    self._queue.count_missing()
                    if not self._ended.is_set():  # no other program has ended meanwhile
                        self._is_complete.set()
                reported_at = sample.at
                program_ended = False

    def _sample(self) -> Sample:
        sources = self._sources
        machine = sources.machine()
        gpus = sources.gpus()
        at = time.monotonic()
        traffic = sources.traffic() if sources.traffic is not None else None
        return Sample(at, machine, gpus, traffic)

    def _send(self, averages: Averages, start_ns: int) -> None:
        """Send the report of the interval that ends now."""
        report = averages.take()
        key = self._incarnation_key()
        if report is None or key is None:
            return
        quiet = self._find_quiet()
        self._note(quiet)
        end_ns = time.time_ns()
        body = request_body(self._origin, key, report, start_ns, end_ns, self._progress(), quiet)
        self._queue.send(json.dumps(body, separators=(",", ":")).encode())
        if self._queue.is_refused:
            self.is_off = True

    def _note(self, quiet: Quiet | None) -> None:
        """Log that the program will be ended, once for each time in which it is quiet."""
        if quiet is not None and not self._has_noted_quiet:
            self._log(
                f"The program has printed nothing for {quiet.for_s / 60:.0f} min. It is ended in"
                f" {quiet.left_s / 60:.0f} min if it stays so."
            )
        self._has_noted_quiet = quiet is not None


def point_writer(identity: AgentIdentity, monitoring: GoogleApi) -> Callable[[str], object]:
    """Return the function that writes a point of the series `agent/alive`, a heartbeat.

    It takes the time of the point in RFC 3339, and raises HttpError.
    """
    path = _path(identity)
    origin = SeriesOrigin.of(identity)

    def write(at: str) -> object:
        body = json.dumps(alive_body(origin, at)).encode()
        return monitoring.call(path, timeout=WRITE_S, body=body)

    return write


def find_sources(
    environ: Mapping[str, str], log: Callable[[str], None], processes: Callable[[], Sequence[int]]
) -> Sources:
    """Return the readings of this machine. `processes` returns the processes of the program."""
    machine = find_machine(environ, processes=processes)
    traffic = read_traffic if machine.has_own_network else None
    return Sources(machine.read, Gpus(environ, log).read, traffic)


def configured_monitor(
    identity: AgentIdentity,
    sources: Sources,
    metadata: MetadataServer,
    monitoring: GoogleApi,
    run_state: RunState,
    console: Console,
    progress: ProgressCollector | None,
) -> UtilizationMonitor | None:
    """Return the monitor; None if metrics are off.

    Raises nothing for metadata that cannot be read.
    """
    try:
        interval_s = read_interval(metadata)
    except (HttpError, ValueError) as error:
        console.log(
            f"Resource metrics are off: their interval cannot be read from the metadata ({error})."
        )
        return None
    if interval_s is None:
        return None
    path = _path(identity)
    queue = ReportQueue(
        lambda body: monitoring.call(path, timeout=WRITE_S, body=body),
        console.log,
        partial(console.log_loss, Loss.REPORTS),
    )
    return UtilizationMonitor(
        SeriesOrigin.of(identity),
        sources,
        queue,
        incarnation_key=lambda: run_state.last_started,
        log=console.log,
        interval_s=interval_s,
        progress=progress.points if progress is not None else tuple,
    )


def _path(identity: AgentIdentity) -> str:
    return f"/v3/projects/{identity.config.project}/timeSeries"
