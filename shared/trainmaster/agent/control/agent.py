"""The agent's decisions: compare the latest directive with what is running, and take the next step."""

from __future__ import annotations

import functools
import signal
import time
from typing import TYPE_CHECKING

from trainmaster.agent.control.exit_reporter import ExitReporter
from trainmaster.agent.control.stall_watch import StallWatch
from trainmaster.agent.control.start_delay import StartDelay
from trainmaster.agent.model.results import ProgramExit, SetupFailure
from trainmaster.agent.model.vm_config import parse_directive, supersedes
from trainmaster.agent.program.devices import has_gpu
from trainmaster.agent.shutdown.vm_shutdown_notice import GPU_NOTICE_S, NOTICE_S, VmShutdownNotice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainmaster.agent.control.launcher import Launcher, RunningProgram
    from trainmaster.agent.control.run_state import RunState
    from trainmaster.agent.model.inbox import Inbox
    from trainmaster.agent.model.vm_config import AgentIdentity, IncarnationKey
    from trainmaster.agent.reporting.events import EventReporter
    from trainmaster.agent.reporting.serial_console import Console
    from trainmaster.agent.setup.setup import Setup, SetupResult

SIGNAL_SKEW_MAX_S = 0.3  # how far apart a shutdown's signals to the program and to the agent may arrive
FLUSH_S = 5.0  # time for the last events, and then for the last log lines, when the VM shuts down


class Agent:
    """Everything here runs on the main thread, except where a docstring says otherwise."""

    def __init__(
        self,
        *,
        identity: AgentIdentity,
        inbox: Inbox,
        reporter: EventReporter,
        run_state: RunState,
        setup: Setup,
        launcher: Launcher,
        console: Console,
    ) -> None:
        config = identity.config
        self._config = config
        self._inbox = inbox
        self._reporter = reporter
        self._run_state = run_state
        self._setup = setup
        self._launcher = launcher
        self._console = console
        self._exit_reporter = ExitReporter(inbox, run_state, console)
        self._shutdown_notice = VmShutdownNotice(
            inbox,
            console,
            run_state.reported_causes,
            request_save=self._request_save,
            report=self._report_maintenance,
            notice_s=GPU_NOTICE_S if has_gpu() else NOTICE_S,
        )
        self._stall_watch = StallWatch(identity, inbox, console)
        self._start_delay = StartDelay(config)
        self._program: RunningProgram | None = None
        self._running: IncarnationKey | None = None
        self._save_requested: IncarnationKey | None = None
        """The incarnation that was asked to save because its VM is about to stop."""
        self._is_ended_on_purpose = False
        """A directive ends the running program: its exit is not reported."""
        self._is_setting_up = False
        self._unreported_causes: list[str] = []
        """Maintenance that was announced before the first directive; its incarnation is not known yet."""
        self._is_shutting_down = False
        self._is_finished = False

    def run(self) -> None:
        """Run until the VM shuts down."""
        self._inbox.on_shutdown(self._on_shutdown)
        self._launcher.clean_up()
        self._inbox.watch("instance/attributes/trainmaster-directive", self._on_directive)
        self._shutdown_notice.watch()
        self._reporter.start()
        self._console.log("Waiting for a directive.")
        while not self._is_finished or not self._inbox.is_empty:
            self._inbox.handle_next()
        self._console.flush(FLUSH_S)

    # Events.

    def _on_directive(self, text: str) -> None:
        try:
            directive = parse_directive(text)
        except (KeyError, TypeError, ValueError) as error:
            self._console.log(f"Ignoring a directive that cannot be read ({error}): {text[:200]!r}")
            return
        attempt, incarnation = directive.key
        words = f"{directive.action} attempt {attempt}, incarnation {incarnation}."
        current = self._run_state.desired
        if current is not None and supersedes(current.key, directive.key):
            self._console.log(f"Ignoring an outdated directive: {words}")
            return
        if directive != current:
            self._console.log(f"Directive: {words}")
            self._run_state.set_desired(directive, is_running=self._program is not None)
        self._start_delay.on_directive(directive)
        self._run_state.settle_previous_run(directive)
        while self._unreported_causes:
            self._run_state.report_maintenance(directive.key, self._unreported_causes.pop(0))
        self._reconcile()

    def _on_setup_done(self, result: SetupResult) -> None:
        self._is_setting_up = False
        if self._is_shutting_down:
            return
        if isinstance(result, SetupFailure):
            self._on_setup_failed(result)
        else:
            if not self._run_state.is_set_up:
                self._run_state.mark_set_up()
            self._start_when_allowed(result)
        self._reconcile()

    def _on_setup_failed(self, failure: SetupFailure) -> None:
        self._console.log(f"Setup failed ({failure.cause}): {failure.error['message']}")
        desired = self._run_state.desired
        if desired is None or desired.action != "run":
            return  # setup runs again when a directive asks for a run
        self._run_state.mark_started(desired.key)
        self._run_state.report_exit(
            desired.key,
            ProgramExit(failure.exit_status, error=failure.error, tail=failure.tail, cause=failure.cause),
        )

    def _on_program_ended(self, key: IncarnationKey, program_exit: ProgramExit) -> None:
        self._program = None
        self._running = None
        self._shutdown_notice.on_idle()
        self._stall_watch.stop()
        if self._is_ended_on_purpose:
            self._console.log(f"Module stopped as directed, with {program_exit.how}.")
        elif self._is_vm_stopping(key):
            self._exit_reporter.report_vm_stopping(key, program_exit, is_shutting_down=self._is_shutting_down)
        elif self._stall_watch.has_stalled(key):
            self._exit_reporter.report_stalled(key, program_exit)
        else:
            self._exit_reporter.report(key, program_exit, self._launcher.command)
        self._reconcile()

    def _on_shutdown(self) -> None:
        if not self._is_shutting_down:
            self._console.log("The VM is shutting down.")
            self._is_shutting_down = True
            self._setup.cancel()
            self._launcher.cancel()
        self._reconcile()

    # Steps.

    def _reconcile(self) -> None:
        """Take the next step from what runs to what is desired. Called after every event."""
        desired = self._run_state.desired
        if self._program is not None:
            self._is_ended_on_purpose |= desired is None or desired.action != "run" or desired.key != self._running
            if self._is_ended_on_purpose or self._is_shutting_down:
                self._stall_watch.stop()
                self._program.end(self._config.grace_s)
        elif self._is_shutting_down:
            self._exit_reporter.report_delayed()
            self._reporter.flush(FLUSH_S)
            self._is_finished = True
        elif self._run_state.next_incarnation is not None and not self._is_setting_up:
            self._is_setting_up = True
            self._inbox.start_thread(functools.partial(self._set_up, is_installed=self._run_state.is_set_up))

    def _start_when_allowed(self, secrets: Mapping[str, str]) -> None:
        """Start the incarnation that is desired now, once its delay is over."""
        key = self._run_state.next_incarnation
        if key is None:
            return
        remaining_s = self._start_delay.remaining_s
        if remaining_s:
            self._console.log(f"Waiting {remaining_s:.0f} s {self._start_delay.purpose}.")
            self._is_setting_up = True
            self._inbox.post_later(remaining_s, functools.partial(self._on_setup_done, secrets))
        else:
            self._start(key, secrets)

    def _start(self, key: IncarnationKey, secrets: Mapping[str, str]) -> None:
        self._run_state.mark_started(key)
        self._reporter.report_ready(key)
        self._is_ended_on_purpose = False
        desired = self._run_state.desired
        try:
            program = self._launcher.start(key, secrets, desired.slices if desired else ())
        except (OSError, ValueError) as error:  # arguments that are too long or contain a null character
            details = {"type": type(error).__name__, "message": str(error), "frame": ""}
            self._run_state.report_exit(key, ProgramExit(126, error=details, tail=str(error)))
            return
        self._program = program
        self._running = key
        self._stall_watch.start(key, program)
        self._inbox.start_thread(functools.partial(self._await_end, key, program))

    def _request_save(self) -> bool:
        """Send the checkpoint signal to the program; return whether one is running."""
        if self._program is None:
            return False
        self._save_requested = self._running
        self._console.log(f"Sending {self._config.checkpoint_signal.name} to the program, so that it saves its state.")
        self._program.notify(self._config.checkpoint_signal)
        return True

    def _is_vm_stopping(self, key: IncarnationKey) -> bool:
        """Return whether this incarnation ended because its VM stops.

        True for exit status 0 as well: a program that was asked to save and then exits has saved, not completed.
        """
        return self._is_shutting_down or (self._shutdown_notice.is_announced and self._save_requested == key)

    def _report_maintenance(self, cause: str) -> None:
        desired = self._run_state.desired
        if desired is None:
            self._unreported_causes.append(cause)
        else:
            self._run_state.report_maintenance(desired.key, cause)

    # Other threads.

    def _await_end(self, key: IncarnationKey, program: RunningProgram) -> None:
        """Wait for the program, in its own thread.

        A shutdown may signal the program and this agent at once. If SIGTERM explains the exit, leave time for the
        agent's own signal; otherwise the exit would count as the program's.
        """
        program_exit = self._launcher.wait(key, program)
        if program_exit.signal == signal.SIGTERM or program_exit.exit_status in (0, 128 + signal.SIGTERM):
            time.sleep(SIGNAL_SKEW_MAX_S)
        self._inbox.post(self._on_program_ended, key, program_exit)

    def _set_up(self, *, is_installed: bool) -> None:
        """Prepare one start, in its own thread."""
        self._inbox.post(self._on_setup_done, self._setup.prepare(is_installed=is_installed))
