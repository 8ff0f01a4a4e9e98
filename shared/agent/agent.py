"""The agent's decisions: what is wanted, what runs, and the next step from one to the other."""

from __future__ import annotations

import functools
import signal
import time
from typing import TYPE_CHECKING

from shared.agent.gang import parse_directive, supersedes

if TYPE_CHECKING:
    from shared.agent.console import Console
    from shared.agent.gang import Gang, Key
    from shared.agent.inbox import Inbox
    from shared.agent.launch import Launcher
    from shared.agent.lives import Lives
    from shared.agent.packages import Failure, Setup
    from shared.agent.program import Ended, Program
    from shared.agent.report import Report

SHUTDOWN_NOTICE_S = 0.3  # how far apart a shutdown's signals to the program and to the agent may arrive
FLUSH_S = 5.0  # left for the last words when the VM shuts down


class Agent:
    """Everything here runs on the main thread, except where a docstring says otherwise."""

    def __init__(
        self,
        *,
        gang: Gang,
        inbox: Inbox,
        report: Report,
        lives: Lives,
        setup: Setup,
        launcher: Launcher,
        console: Console,
    ) -> None:
        self._gang = gang
        self._inbox = inbox
        self._report = report
        self._lives = lives
        self._setup = setup
        self._launcher = launcher
        self._console = console
        self._program: Program | None = None
        self._running: Key | None = None
        self._unwanted = False  # what runs is being ended on purpose: its exit is nobody's news
        self._setting_up = False
        self._seen_faults = lives.announced
        self._waiting_faults: list[str] = []  # seen before the first directive said whom to speak for
        self._stopping = False
        self._over = False

    def run(self) -> None:
        """Until the VM shuts down."""
        self._inbox.on_shutdown(self._on_shutdown)
        self._launcher.clean_up()
        self._inbox.watch("instance/attributes/trainmaster-directive", self._on_directive)
        self._inbox.watch("instance/maintenance-event", self._on_maintenance)
        self._inbox.watch("instance/preempted", self._on_preempted)
        self._report.start()
        self._console.say("Waiting for a directive.")
        while not self._over or not self._inbox.is_empty:
            self._inbox.handle_next()
        self._console.flush(FLUSH_S)

    # What arrives.

    def _on_directive(self, text: str) -> None:
        try:
            directive = parse_directive(text)
        except (KeyError, TypeError, ValueError) as error:
            self._console.say(f"Ignoring a directive that cannot be read ({error}): {text[:200]!r}")
            return
        known = self._lives.wanted
        if known is not None and supersedes(known.key, directive.key):
            self._console.say(f"Ignoring a late directive: {directive.action} {tuple(directive.key)}.")
            return
        if directive != known:
            attempt, incarnation = directive.key
            self._console.say(f"Directive: {directive.action} attempt {attempt}, incarnation {incarnation}.")
            self._lives.want(directive, is_running=self._program is not None)
        self._lives.settle_past(directive)
        while self._waiting_faults:
            self._lives.tell_fault(directive.key, self._waiting_faults.pop(0))
        self._reconcile()

    def _on_maintenance(self, text: str) -> None:
        if text.startswith("TERMINATE"):
            self._on_fault("maintenance")
        elif text != "NONE":
            self._console.say(f"Maintenance event: {text}.")

    def _on_preempted(self, text: str) -> None:
        if text == "TRUE":
            self._on_fault("preemption")

    def _on_fault(self, cause: str) -> None:
        if cause in self._seen_faults:
            return
        self._seen_faults.append(cause)
        self._console.say(f"This VM is about to go: {cause}.")
        wanted = self._lives.wanted
        if wanted is None:
            self._waiting_faults.append(cause)
        else:
            self._lives.tell_fault(wanted.key, cause)

    def _on_setup_ended(self, failure: Failure | None) -> None:
        self._setting_up = False
        if self._stopping:
            return
        if failure is None:
            self._lives.set_up()
        else:
            self._console.say(f"Setting up failed ({failure.cause}): {failure.error['message']}")
            wanted = self._lives.wanted
            if wanted is None or wanted.action != "run":
                return  # tried again when something is wanted
            self._lives.begin(wanted.key)
            self._lives.tell_exit(
                wanted.key,
                cause=failure.cause,
                exit_status=failure.exit_status,
                error=failure.error,
                tail=failure.tail,
            )
        self._reconcile()

    def _on_program_ended(self, key: Key, ended: Ended) -> None:
        self._program = None
        self._running = None
        how = f"exit status {ended.exit_status}" if ended.signal is None else f"signal {ended.signal}"
        if self._unwanted:
            self._console.say(f"Module ended on purpose with {how}.")
        else:
            if ended.exit_status == 0:
                self._console.say("Module completed; cleaning up.")
                self._console.say("Clean up finished.")
                self._console.say("Task completed successfully.")
            else:
                self._console.say(f"Module ended with {how}{', out of memory' if ended.out_of_memory else ''}.")
            self._lives.tell_exit(
                key,
                cause="vm_stopping" if self._stopping else "process",
                exit_status=ended.exit_status,
                signal=ended.signal,
                out_of_memory=ended.out_of_memory,
                error=ended.error,
                tail=ended.tail,
            )
        self._reconcile()

    def _on_shutdown(self) -> None:
        if not self._stopping:
            self._console.say("The VM is shutting down.")
            self._stopping = True
            self._setup.cancel()
        self._reconcile()

    # What follows.

    def _reconcile(self) -> None:
        """Takes the next step from what runs to what is wanted. Repeated after everything that happens."""
        wanted = self._lives.wanted
        to_begin = self._lives.to_begin
        if self._program is not None:
            self._unwanted |= wanted is None or wanted.action != "run" or wanted.key != self._running
            if self._unwanted or self._stopping:
                self._program.end(self._gang.grace_s)
        elif self._stopping:
            self._report.flush(FLUSH_S)
            self._over = True
        elif to_begin is None:
            pass
        elif self._lives.is_set_up:
            self._start(to_begin)
        elif not self._setting_up:
            self._setting_up = True
            self._inbox.thread(self._set_up)

    def _start(self, key: Key) -> None:
        self._lives.begin(key)
        self._report.ready(key)
        self._unwanted = False
        try:
            program = self._launcher.start()
        except (OSError, ValueError) as error:  # arguments too long, a null character in them
            problem = {"type": type(error).__name__, "message": str(error), "frame": ""}
            self._lives.tell_exit(key, cause="process", exit_status=126, error=problem, tail=str(error))
            return
        self._program = program
        self._running = key
        self._inbox.thread(functools.partial(self._await_end, key, program))

    # Other threads.

    def _await_end(self, key: Key, program: Program) -> None:
        """In a thread of its own. A shutdown may signal the program and this agent at once: an end that SIGTERM
        explains waits for the agent's own signal, or it would be taken for the program's doing."""
        ended = program.wait()
        if ended.signal == signal.SIGTERM or ended.exit_status in (0, 128 + signal.SIGTERM):
            time.sleep(SHUTDOWN_NOTICE_S)
        self._inbox.post(self._on_program_ended, key, ended)

    def _set_up(self) -> None:
        """In a thread of its own."""
        self._inbox.post(self._on_setup_ended, self._setup.install(self._gang.package_uris))
