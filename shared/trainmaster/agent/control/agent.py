"""The agent's decisions: compare the latest directive with the agent's state, and take the next
step.

The directive in the VM's metadata is the order of the control plane: hold, run, save or stop one
incarnation, which is one execution of the program. Each event (a new directive, the program's end,
a timer) puts a handler into the inbox. The main thread runs the handlers one after the other, and
each of them ends with `_reconcile`.

`agent_states.py` draws the states. `run_state.py` keeps two more facts on disk:

    pending   a directive holds or runs an incarnation that this agent has not started yet
    closed    a directive has ended the incarnation that was started last, so that the exit of its
              program is no evidence about the program
"""

from __future__ import annotations

import functools
import math
import signal
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from trainmaster.agent.channel.peer_channel import PeerChannel
from trainmaster.agent.control.agent_states import EDGES, AgentState
from trainmaster.agent.control.exit_reporter import ExitReporter
from trainmaster.agent.control.launcher import Launcher
from trainmaster.agent.control.run_state import RunState
from trainmaster.agent.control.saving import Saving
from trainmaster.agent.control.stall_watch import StallWatch, Surroundings
from trainmaster.agent.control.start_delay import StartDelay
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.model.results import ProgramExit, SetupFailure
from trainmaster.agent.model.vm_config import (
    AgentIdentity,
    IncarnationKey,
    ReceivedDirective,
    parse_directive,
)
from trainmaster.agent.program.program import Program
from trainmaster.agent.reporting.events import EventReporter
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup.setup import Setup
from trainmaster.agent.shutdown.paid_time import PaidTime
from trainmaster.agent.shutdown.vm_shutdown_notice import VmShutdownNotice

if TYPE_CHECKING:
    from trainmaster.agent.setup.setup import SetupResult

ANOTHER_JOB = 76
"""Exit status after which the startup script starts the agent that the metadata names now."""
SIGNAL_SKEW_MAX_S = 0.3
"""How far apart a shutdown's signals to the program and to the agent may arrive."""
STATUSES_AFTER_SIGTERM = (0, 128 + signal.SIGTERM)
"""Exit statuses of a program that catches SIGTERM, and of a shell whose child SIGTERM ended."""
CANNOT_EXECUTE = 126
"""Exit status by which shells report a command that cannot be executed."""
FLUSH_S = 5.0
"""Time for the last events, and at least for the last log lines, when the VM shuts down."""
LAST_LINES_S = 18.0
"""From the shutdown of the VM until the log lines that are not sent are dropped and counted.

It leaves time for the count: a Spot VM ends 30 seconds after its shutdown begins.
"""


class Agent:
    """The agent of one VM.

    Everything here runs on the main thread, except where a docstring says otherwise.
    """

    def __init__(  # noqa: PLR0913 - the parts that it controls
        self,
        *,
        identity: AgentIdentity,
        inbox: Inbox,
        reporter: EventReporter,
        run_state: RunState,
        setup: Setup,
        launcher: Launcher,
        console: Console,
        notice_s: float,
        channel: PeerChannel | None = None,
        surroundings: Surroundings | None = None,
        paid_time: PaidTime | None = None,
    ) -> None:
        """`notice_s`: how long before maintenance Compute Engine announces it to this machine.

        `surroundings`: the machine's activity outside the program. `paid_time`: None on a machine
        that no `maxCost` ends.
        """
        config = identity.config
        self._config = config
        self._inbox = inbox
        self._reporter = reporter
        self._run_state = run_state
        self._setup = setup
        self._launcher = launcher
        self._console = console
        self._channel = channel
        self._paid_time = paid_time
        self._exit_reporter = ExitReporter(inbox, run_state, console)
        self._shutdown_notice = VmShutdownNotice(
            inbox,
            console,
            run_state.reported_causes,
            request_save=lambda: self._saving.request(
                self._program, self._shutdown_notice.gives_up_s
            ),
            report=run_state.report_maintenance,
            notice_s=notice_s,
            is_gang=config.saves_together,
        )
        self._saving = Saving(
            config, inbox, console, launcher, run_state, channel, enter=self._enter_saving
        )
        self.stall_watch = StallWatch(identity, inbox, console, launcher, channel, surroundings)
        self._start_delay = StartDelay(config, inbox.clock.monotonic_s)
        self._state = AgentState.IDLE
        self._program: Program | None = None
        """The program of the incarnation that was started last, while it runs."""
        self._prepared: IncarnationKey | None = None
        """The incarnation that the VM was set up for, in WAITING."""
        self._secrets: Mapping[str, str] = {}
        """Secrets of the prepared incarnation, by the variable that holds each of them."""
        self.exit_status = 0
        """Exit status of the agent's process: `ANOTHER_JOB` if the startup script must start the
        agent again at once, for another job.
        """
        self._shutdown_at = -math.inf
        """When the shutdown of the VM began, by the monotonic clock."""

    def run(self) -> None:
        """Run until the VM shuts down."""
        self._inbox.on_shutdown(self._on_shutdown)
        self._launcher.clean_up()
        self._inbox.watch("instance/attributes/trainmaster-directive", self._on_directive)
        self._shutdown_notice.watch()
        self._reporter.start()
        self._console.log("Waiting for a directive.")
        while self._state is not AgentState.FINISHED or not self._inbox.is_empty:
            self._inbox.handle_next()
        past_s = self._inbox.clock.monotonic_s() - self._shutdown_at
        self._console.close(max(LAST_LINES_S - past_s, FLUSH_S))

    # Events.

    def _on_directive(self, text: str) -> None:
        """Take a new value of the metadata. One that is older than the last, or that cannot be
        read, changes nothing.
        """
        try:
            directive = parse_directive(text)
        except (KeyError, TypeError, ValueError) as error:
            self._console.log(f"Ignoring a directive that cannot be read ({error}): {text[:200]!r}")
            return
        if directive.tenure != self._config.tenure:
            self._on_other_tenure(directive)
            return
        attempt, incarnation = directive.key
        words = f"{directive.action} attempt {attempt}, incarnation {incarnation}."
        current = self._run_state.desired
        if current is not None and current.order > directive.order:
            self._console.log(f"Ignoring an outdated directive: {words}")
            return
        if directive != current:
            # The control plane moves `paid_until` on while a job runs, which orders nothing new.
            is_extension = (
                current is not None
                and replace(current, paid_until=directive.paid_until) == directive
            )
            if not is_extension:
                self._console.log(f"Directive: {words}")
            self._run_state.set_desired(directive, is_running=self._runs_on)
        if self._paid_time is not None:
            self._paid_time.on_directive(directive)
        self._start_delay.on_directive(directive)
        self._run_state.settle_previous_run(directive)
        self._saving.on_directive(directive)
        self._reconcile()

    def _on_other_tenure(self, directive: ReceivedDirective) -> None:
        """Leave this VM to the agent of the job that has taken it, once nothing runs any more.

        The tenure is the number of the job among those that have had the VM, from 1. A directive of
        an earlier tenure is outdated, and ignored.
        """
        if directive.tenure < self._config.tenure or self.exit_status == ANOTHER_JOB:
            return
        self._console.log("Another job has taken this VM: ending what runs.")
        self.exit_status = ANOTHER_JOB
        if self._run_state.desired is not None:
            stop = replace(self._run_state.desired, action="stop")
            self._run_state.set_desired(stop, is_running=self._program is not None)
        self._setup.cancel()
        self._launcher.cancel()
        self._reporter.stop_repeating()
        self._leave_if_idle()
        self._reconcile()

    def _leave_if_idle(self) -> None:
        """Enter FINISHED if another job has taken this VM, and no program runs."""
        is_leaving = self.exit_status == ANOTHER_JOB and self._program is None
        if is_leaving and self._state is not AgentState.FINISHED:
            self._move(AgentState.FINISHED)

    def _on_setup_done(self, result: SetupResult) -> None:
        if self._state is AgentState.FINISHED:
            return
        self._reporter.finding = self._setup.preflight.finding
        if isinstance(result, SetupFailure):
            self._move(AgentState.IDLE)
            self._on_setup_failed(result)
        else:
            self._on_set_up(result)
        self._reconcile()

    def _on_set_up(self, secrets: Mapping[str, str]) -> None:
        directive = self._run_state.pending
        self._move(AgentState.IDLE if directive is None else AgentState.WAITING)
        if not self._run_state.is_set_up:
            self._run_state.mark_set_up()
        if directive is not None:
            self._prepared = directive.key
            self._secrets = secrets
            if directive.action == "hold":
                self._run_state.report_ready(directive.key)

    def _on_setup_failed(self, failure: SetupFailure) -> None:
        self._console.log(f"Setup failed ({failure.cause}): {failure.error['message']}")
        directive = self._run_state.pending
        if directive is None:
            return  # setup runs again when a directive asks for a start
        program_exit = ProgramExit(
            failure.exit_status, error=failure.error, tail=failure.tail, cause=failure.cause
        )
        self._exit_reporter.record_and_report(program_exit, directive.key)

    def _on_program_ended(self, key: IncarnationKey, program_exit: ProgramExit) -> None:
        is_shutting_down = self._state is AgentState.SHUTTING_DOWN
        # Exit status 0 makes no difference: a program that was asked to save and then exits has
        # saved, not completed.
        has_saved = self._state is AgentState.SAVING and self._shutdown_notice.is_announced
        self._program = None
        self._move(AgentState.FINISHED if is_shutting_down else AgentState.IDLE)
        self._shutdown_notice.on_idle()
        self.stall_watch.stop()
        self._leave_if_idle()
        if self._run_state.is_closed:
            self._console.log(f"Module stopped as directed, with {program_exit.how}.")
        elif is_shutting_down or has_saved:
            self._exit_reporter.report_vm_stopping(program_exit)
        elif self._saving.was_asked(key):
            self._exit_reporter.report_end(
                replace(program_exit, cause="saved"), "after it was asked to save"
            )
        elif self.stall_watch.has_stalled(key):
            self._exit_reporter.report_end(
                self.stall_watch.explain(program_exit), "because it had stalled"
            )
        else:
            self._exit_reporter.report(program_exit, self._launcher.command)
        self._reconcile()

    def _on_shutdown(self) -> None:
        if self._state not in (AgentState.SHUTTING_DOWN, AgentState.FINISHED):
            self._shutdown_at = self._inbox.clock.monotonic_s()
            self._console.hurry()
            self._console.log("The VM is shutting down.")
            self._shutdown_notice.on_shutdown()
            self._move(AgentState.FINISHED if self._program is None else AgentState.SHUTTING_DOWN)
            self._setup.cancel()
            self._launcher.cancel()
        self._reconcile()

    @property
    def _runs_on(self) -> bool:
        """Whether the program would run on without a directive: it has not ended, and nothing else
        is ending it.
        """
        started = self._run_state.last_started
        if self._program is None or started is None or not self._is_running:
            return False
        return self._program.is_alive and not self.stall_watch.has_stalled(started)

    @property
    def _is_running(self) -> bool:
        return self._state in (AgentState.RUNNING, AgentState.SAVING)

    # Steps.

    def _reconcile(self) -> None:
        """Take the next step from what runs to what is desired. Called after every event."""
        is_closed = self._is_running and self._run_state.is_closed
        if is_closed and not self._defer(self._saving.patience_s):
            self._move(AgentState.ENDING)
        if self._program is not None:
            must_end = self._state is AgentState.ENDING
            if self._state is AgentState.SHUTTING_DOWN:
                must_end = not self._defer(self._shutdown_notice.save_s)
            if must_end:
                self._end(self._program)
        elif self._state is AgentState.FINISHED:
            self._exit_reporter.report_delayed()
            self._reporter.flush(FLUSH_S)
        elif self._state in (AgentState.IDLE, AgentState.WAITING):
            self._prepare_next()

    def _end(self, program: Program) -> None:
        """End the program, as a directive orders or because the VM shuts down. Safe to repeat.

        Whether it had left its peers (its ranks have exited 0, and its launcher waits for those of
        other machines) is noted before its end hides it.
        """
        is_first_order = self._state is AgentState.ENDING and not program.is_ending
        if is_first_order and program.has_left_peers():
            self._run_state.mark_left_peers()
        self.stall_watch.stop()
        program.end(self._shutdown_notice.within(self._config.grace_s))

    def _prepare_next(self) -> None:
        """Prepare the incarnation that the directive holds or runs, or start it if it is prepared
        and may run.
        """
        directive = self._run_state.pending
        is_prepared = directive is not None and directive.key == self._prepared
        if self._state is AgentState.WAITING and not is_prepared:
            self._move(AgentState.IDLE)
        if directive is None or self._shutdown_notice.is_given_up:
            return
        if self._state is AgentState.IDLE:
            self._move(AgentState.SETTING_UP)
            self._inbox.start_thread(
                functools.partial(self._set_up, is_installed=self._run_state.is_set_up)
            )
        elif directive.runs:
            remaining_s = self._start_delay.remaining_s(
                is_after_hold=self._run_state.is_ready(directive.key)
            )
            if remaining_s:
                self._console.log(f"Waiting {remaining_s:.0f} s {self._start_delay.purpose}.")
                self._inbox.post_later(remaining_s, self._reconcile)
            else:
                self._start(directive, self._secrets)

    def _start(self, directive: ReceivedDirective, secrets: Mapping[str, str]) -> None:
        key = directive.key
        if self._channel is not None:
            self._channel.absent = directive.without
        self._run_state.mark_started(key)
        self._run_state.report_started(key)
        try:
            program = self._launcher.start(key, secrets, directive.slices, directive.without)
        except (OSError, ValueError) as error:
            # The arguments are too long, or contain a null character.
            self._move(AgentState.IDLE)
            details = {"type": type(error).__name__, "message": str(error), "frame": ""}
            self._exit_reporter.record_and_report(
                ProgramExit(CANNOT_EXECUTE, error=details, tail=str(error))
            )
            return
        self._program = program
        self._move(AgentState.RUNNING)
        self.stall_watch.start(key, program)
        self._inbox.start_thread(functools.partial(self._await_end, key, program))

    def _enter_saving(self) -> None:
        if self._state is AgentState.RUNNING:
            self._move(AgentState.SAVING)

    def _defer(self, left_s: float) -> bool:
        """Return whether time is left; if so, call `_reconcile` again when it is over."""
        if left_s <= 0:
            return False
        self._inbox.post_later(left_s, self._reconcile)
        return True

    def _move(self, target: AgentState) -> None:
        """Enter the next state.

        An edge that the table lacks is a bug, but must not end a training: it is logged.
        """
        if (self._state, target) not in EDGES:
            self._console.log(
                f"Unexpected change of the agent's state: {self._state.name} -> {target.name}."
            )
        self._state = target

    # Other threads.

    def _await_end(self, key: IncarnationKey, program: Program) -> None:
        """Wait for the program, in its own thread.

        A shutdown may signal the program and this agent at once. If SIGTERM explains the exit,
        leave time for the agent's own signal; otherwise the exit would count as the program's.
        """
        program_exit = self._launcher.wait(key, program)
        may_be_shutdown = (
            program_exit.signal == signal.SIGTERM
            or program_exit.exit_status in STATUSES_AFTER_SIGTERM
        )
        if may_be_shutdown and not program.is_ending:
            self._inbox.clock.sleep(SIGNAL_SKEW_MAX_S)
        self._inbox.post(self._on_program_ended, key, program_exit)

    def _set_up(self, *, is_installed: bool) -> None:
        """Prepare one start, in its own thread."""
        self._launcher.await_end()
        self._inbox.post(self._on_setup_done, self._setup.prepare(is_installed=is_installed))
