"""Persistent record of which incarnations this VM started and how each ended.

It is written before an incarnation starts and before its end is reported, so that after a crash of the agent or a
reboot no incarnation runs twice and no exit is lost.
"""

from __future__ import annotations

import functools
from dataclasses import asdict
from typing import TYPE_CHECKING

from trainmaster.agent.control.state_file import StoredState
from trainmaster.agent.model.results import ProgramExit
from trainmaster.agent.model.vm_config import supersedes
from trainmaster.agent.reporting.events import utc_now

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from trainmaster.agent.model.vm_config import IncarnationKey, ReceivedDirective
    from trainmaster.agent.reporting.events import EventReporter
    from trainmaster.agent.reporting.serial_console import Console


class RunState:
    """Use it on the main thread only, except where a docstring says otherwise."""

    def __init__(self, file: Path, instance_id: str, reporter: EventReporter, console: Console) -> None:
        self._file = file
        self._reporter = reporter
        self._console = console
        self._state = StoredState.load(file, instance_id)
        self._previous_run_settled = False
        self._unreported_causes: list[str] = []
        """Maintenance that was announced before the first directive: its incarnation is not known yet."""

    @property
    def desired(self) -> ReceivedDirective | None:
        """The latest directive."""
        return self._state.desired

    @property
    def last_started(self) -> IncarnationKey | None:
        """The last incarnation that was started. May be read from any thread."""
        return self._state.started

    @property
    def is_closed(self) -> bool:
        """Whether a directive ended the incarnation that was started last, so that its exit is not reported."""
        return self._state.closed

    @property
    def is_set_up(self) -> bool:
        """Whether the job's packages are installed on this VM."""
        return self._state.setup_done

    def mark_set_up(self) -> None:
        self._state.setup_done = True
        self._save()

    @property
    def next_start(self) -> ReceivedDirective | None:
        """The directive, if it orders an incarnation that was not started yet: each one is started at most once."""
        desired = self._state.desired
        is_start = desired is not None and desired.action == "run" and supersedes(desired.key, self._state.started)
        return desired if is_start else None

    def set_desired(self, directive: ReceivedDirective, *, is_running: bool) -> None:
        """Store a directive that differs from the last one. `is_running`: the program is running."""
        self._state.desired = directive
        self._reporter.drop_before(directive.key)
        if supersedes(directive.key, self._state.started) or (is_running and directive.action != "run"):
            self._close()
        self._save()
        while self._unreported_causes:
            self.report_maintenance(self._unreported_causes.pop(0))

    def mark_started(self, key: IncarnationKey) -> None:
        """Store that this incarnation is used up. Call it before the program starts."""
        self._state.started = key
        self._state.closed = False
        self._state.exit = None
        self._save()

    def settle_previous_run(self, directive: ReceivedDirective) -> None:
        """Report how the incarnation ended that ran before the agent crashed or the VM rebooted.

        Call it with every directive: only the first call has an effect. The directive shows whether that exit still
        matters.
        """
        if self._previous_run_settled:
            return
        self._previous_run_settled = True
        key = self._state.started
        if key is None or self._state.closed or supersedes(directive.key, key):
            return
        if self._state.exit is not None:
            self._send_exit(key, self._state.exit)
        elif directive.action == "run":
            self._console.log("The VM or its agent restarted while the program was running.")
            self.report_exit(key, ProgramExit(cause="vm_restarted"))
        else:
            self._close()
            self._save()

    def report_exit(self, key: IncarnationKey, program_exit: ProgramExit) -> None:
        """Store the exit and report it until a newer directive supersedes it, also after a reboot.

        Pub/Sub may lose a message that it has accepted, so its acceptance does not end the report.
        """
        body = {"at": utc_now(), **asdict(program_exit)}
        metric = body.pop("measurement")
        if metric:
            earlier = metric.pop("earlier")
            body["metric"] = {**metric, "earlier": earlier} if earlier else metric
        self._state.exit = body
        self._save()
        self._send_exit(key, self._state.exit)

    @property
    def reported_causes(self) -> list[str]:
        """Causes of this VM's maintenance events that were accepted."""
        return list(self._state.announced)

    def report_maintenance(self, cause: str) -> None:
        """Report it for the incarnation of the latest directive; at the first directive, if there was none yet."""
        if self._state.desired is None:
            self._unreported_causes.append(cause)
        else:
            accepted = functools.partial(self._on_maintenance_accepted, cause)
            self._reporter.report_maintenance(self._state.desired.key, cause, accepted)

    def _send_exit(self, key: IncarnationKey, body: Mapping[str, object]) -> None:
        self._reporter.report_exit(key, body, self._on_exit_accepted)

    def _on_exit_accepted(self) -> None:
        self._console.log("The exit is reported.")

    def _on_maintenance_accepted(self, cause: str) -> None:
        self._state.announced.append(cause)
        self._save()
        self._console.log(f"The {cause} is reported.")

    def _close(self) -> None:
        self._state.closed = True
        self._state.exit = None

    def _save(self) -> None:
        try:
            self._state.save(self._file)
        except OSError as error:  # a full disk must neither end the training nor hide its exit
            self._console.log(f"Cannot write the agent's state to {self._file}: {error}")
