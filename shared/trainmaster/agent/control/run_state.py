"""Persistent record of which incarnations (executions of the program) this VM started and how each
ended, and the reports that follow from it.

    directive run ──► mark_started ──► report_started ──► program
    program ends  ──► record_exit  ──► report_exit
    directive hold ──► report_ready, with the exit that no report has explained yet

A directive is the order of the control plane in the VM's metadata. Under `hold`, all members of a
job wait for each other. The record is written before an incarnation starts and before its end is
reported, so that after a crash of the agent or a reboot no incarnation runs twice and no exit is
lost.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from trainmaster.agent.control.state_file import StoredState
from trainmaster.agent.model.results import ProgramExit
from trainmaster.agent.model.vm_config import IncarnationKey, ReceivedDirective, supersedes
from trainmaster.agent.reporting.events import EventReporter
from trainmaster.agent.reporting.serial_console import Console


class RunState:
    """The record of this VM.

    Use it on the main thread only, except where a docstring says otherwise.
    """

    def __init__(
        self, file: Path, instance_id: str, reporter: EventReporter, console: Console
    ) -> None:
        self._file = file
        self._reporter = reporter
        self._console = console
        self._state = StoredState.load(file, instance_id)
        self._previous_run_settled = False
        """Whether `settle_previous_run` was called: the first directive has arrived."""
        self._reported_ready: IncarnationKey | None = None
        """The last incarnation whose vm-ready this process reported under `hold`, accepted or not.

        `_state.ready` is the last one that was accepted, and is kept over restarts.
        """
        self._unreported_causes: list[str] = []
        """Maintenance that was announced before the first directive: its incarnation is not known
        yet.
        """

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
        """Whether a directive ended the incarnation that was started last, so that its exit is no
        evidence.
        """
        return self._state.closed

    @property
    def is_set_up(self) -> bool:
        """Whether the job's packages are installed on this VM."""
        return self._state.setup_done

    def mark_set_up(self) -> None:
        """Store that the job's packages are installed on this VM."""
        self._state.setup_done = True
        self._save()

    @property
    def pending(self) -> ReceivedDirective | None:
        """The latest directive, if it holds or runs an incarnation that was not started yet; else
        None.

        Each incarnation is started once.
        """
        desired = self._state.desired
        is_pending = (
            desired is not None
            and desired.action != "stop"
            and supersedes(desired.key, self._state.started)
        )
        return desired if is_pending else None

    def is_ready(self, key: IncarnationKey) -> bool:
        """Return whether a vm-ready of this incarnation was published under `hold`, or is being
        published.
        """
        return key in (self._state.ready, self._reported_ready)

    def set_desired(self, directive: ReceivedDirective, *, is_running: bool) -> None:
        """Store a directive that differs from the last one.

        `is_running`: a program runs that the directive may end.
        """
        self._state.desired = directive
        self._reporter.drop_before(directive.key)
        ends_program = supersedes(directive.key, self._state.started) or not directive.runs
        if is_running and ends_program:
            self._state.closed = True
        self._save()
        while self._unreported_causes:
            self.report_maintenance(self._unreported_causes.pop(0))

    def mark_started(self, key: IncarnationKey) -> None:
        """Store that this incarnation is used up. Call it before the program starts."""
        self._state.started = key
        self._state.closed = False
        self._state.exit = None
        self._state.left_peers = False
        self._save()

    def mark_left_peers(self) -> None:
        """Store that the program had left its peers when a directive ended it: its ranks had exited
        0, and its launcher waited for those of other machines (`Program.has_left_peers`).

        Call it before the program is ended.
        """
        self._state.left_peers = True
        self._save()

    def report_started(self, key: IncarnationKey) -> None:
        """Report that the program is about to start, unless a vm-ready under `hold` says so."""
        if self.is_ready(key):
            self._reporter.stop_repeating()
        else:
            self._reporter.report_ready(key)

    def settle_previous_run(self, directive: ReceivedDirective) -> None:
        """Record how the incarnation ended that ran before the agent crashed or the VM rebooted,
        and report it.

        Call it with every directive: only the first call has an effect.
        """
        if self._previous_run_settled:
            return
        self._previous_run_settled = True
        key = self._state.started
        if key is None or self._state.closed:
            return
        if self._state.exit is None:
            is_ended_by_directive = directive.key == key and not directive.runs
            if is_ended_by_directive:
                self._state.closed = True
                self._save()
                return
            self._console.log("The VM or its agent restarted while the program was running.")
            self.record_exit(ProgramExit(cause="vm_restarted"))
        self.report_exit()

    def report_ready(self, key: IncarnationKey) -> None:
        """Report under `hold` that this incarnation could start, because nothing older runs; and
        how the previous incarnation ended, if it ended by itself.
        """
        self._reported_ready = key
        self._reporter.report_ready(
            key,
            functools.partial(self._on_ready_accepted, key),
            ended=self._previous_end(),
            is_held=True,
            left_peers=self._state.left_peers,
        )

    def _previous_end(self) -> dict[str, Any] | None:
        """Return how the incarnation ended that was started last, with its key; None if none has
        started, if it runs, or if a directive ended it.
        """
        if self._state.started is None or self._state.exit is None:
            return None
        end = {name: value for name, value in self._state.exit.items() if name != "ended"}
        return {**self._state.started._asdict(), **end}

    def record_exit(
        self, program_exit: ProgramExit, unstarted: IncarnationKey | None = None
    ) -> None:
        """Store how the incarnation ended that was started last.

        `unstarted`: an incarnation that could not be started; it is used up, too. Its exit contains
        how the one before ended, which may not have been reported yet.
        """
        ended = self._previous_end() if unstarted is not None else None
        if unstarted is not None:
            self._state.started = unstarted
            self._state.closed = False
        body = {"at": self._reporter.now_text(), **_message_fields(program_exit)}
        if ended is not None:
            body["ended"] = ended
        self._state.exit = body
        self._save()

    def report_exit(self) -> None:
        """Report the stored exit until a newer directive supersedes it, also after a reboot.

        The control plane may lose a message that Pub/Sub has accepted, so the report is repeated
        even then. An exit that is superseded before it was accepted is reported with the next
        vm-ready.
        """
        key = self._state.started
        body = self._state.exit
        desired = self._state.desired
        if key is None or body is None or desired is None:
            return
        if not supersedes(desired.key, key):
            self._reporter.report_exit(key, body, self._on_exit_accepted)

    @property
    def reported_causes(self) -> list[str]:
        """Causes of this VM's maintenance events that were accepted."""
        return list(self._state.announced)

    def report_maintenance(self, cause: str) -> None:
        """Report maintenance of this VM for the incarnation of the latest directive.

        If there was no directive yet, the report waits for the first one.
        """
        if self._state.desired is None:
            self._unreported_causes.append(cause)
        else:
            accepted = functools.partial(self._on_maintenance_accepted, cause)
            self._reporter.report_maintenance(self._state.desired.key, cause, accepted)

    def report_notice(
        self, key: IncarnationKey, gives_up_s: float, number: int, unanswered: Sequence[int]
    ) -> None:
        """Report that the end of this VM is announced, and that the members of its round (the
        incarnations that train together) are asked to save.

        `gives_up_s`: seconds until the VM is given up. `number`: of the request to save.
        `unanswered`: numbers of the members that did not answer it.
        """
        self._reporter.report_notice(key, gives_up_s, number, unanswered)

    def _on_exit_accepted(self) -> None:
        self._console.log("The exit is reported.")

    def _on_ready_accepted(self, key: IncarnationKey) -> None:
        self._state.ready = key
        self._save()

    def _on_maintenance_accepted(self, cause: str) -> None:
        self._state.announced.append(cause)
        self._save()
        self._console.log(f"The {cause} is reported.")

    def _save(self) -> None:
        try:
            self._state.save(self._file)
        except OSError as error:  # a full disk must neither end the training nor hide its exit
            self._console.log(f"Cannot write the agent's state to {self._file}: {error}")


def _message_fields(program_exit: ProgramExit) -> dict[str, Any]:
    """Return the fields of the message replica-exit: optional ones without a value are left out."""
    fields = asdict(program_exit)
    metric = fields.pop("measurement")
    if metric:
        if not metric["earlier"]:
            del metric["earlier"]
        fields["metric"] = metric
    if not fields["left_nothing"]:
        del fields["left_nothing"]
    progress = fields.pop("progress")
    if progress:
        known = {name: value for name, value in progress.items() if value not in (None, ())}
        fields["progress"] = known
    return fields
