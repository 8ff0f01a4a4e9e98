"""The agent's decisions: what is desired, what runs, and the next step from one to the other."""

from __future__ import annotations

import functools
import signal
import time
from dataclasses import replace
from typing import TYPE_CHECKING

from shared.agent.control.slice_hosts import Parting
from shared.agent.control.vm_config import parse_directive, supersedes
from shared.agent.program.program import Ended
from shared.agent.setup.devices import has_gpu
from shared.agent.setup.failure import Failure
from shared.agent.shutdown.vm_shutdown_notice import GPU_NOTICE_S, NOTICE_S, Departure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from shared.agent.control.inbox import Inbox
    from shared.agent.control.run_state import Lives
    from shared.agent.control.vm_config import Gang, Key
    from shared.agent.program.launcher import Launcher, Running
    from shared.agent.reporting.events import Report
    from shared.agent.reporting.serial_console import Console
    from shared.agent.setup.setup import Prepared, Setup

SHUTDOWN_NOTICE_S = 0.3  # how far apart a shutdown's signals to the program and to the agent may arrive
LAST_WORD_S = 5.0  # how long an announcement that explains an exit goes before it: it says more
FLUSH_S = 5.0  # left for the last words when the VM shuts down


class Agent:
    """Everything here runs on the main thread, except where a docstring says otherwise."""

    def __init__(
        self,
        *,
        gang: Gang,
        inbox: Inbox,
        report: Report,
        incarnations: Lives,
        setup: Setup,
        launcher: Launcher,
        console: Console,
    ) -> None:
        self._gang = gang
        self._inbox = inbox
        self._report = report
        self._lives = incarnations
        self._setup = setup
        self._launcher = launcher
        self._console = console
        self._departure = Departure(
            inbox,
            console,
            incarnations.announced,
            ask_to_save=self._ask_to_save,
            tell=self._tell_fault,
            notice_s=GPU_NOTICE_S if has_gpu() else NOTICE_S,
        )
        self._parting = Parting(gang)
        self._program: Running | None = None
        self._running: Key | None = None
        self._asked_to_save: Key | None = None  # the incarnation that was told that its VM goes
        self._unwanted = False  # what runs is being ended on purpose: its exit is nobody's news
        self._last_word: tuple[Key, Callable[[], None]] | None = None
        self._setting_up = False
        self._waiting_faults: list[str] = []  # seen before the first directive said whom to speak for
        self._stopping = False
        self._over = False

    def run(self) -> None:
        """Until the VM shuts down."""
        self._inbox.on_shutdown(self._on_shutdown)
        self._launcher.clean_up()
        self._inbox.watch("instance/attributes/trainmaster-directive", self._on_directive)
        self._departure.watch()
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
        known = self._lives.desired
        if known is not None and supersedes(known.key, directive.key):
            self._console.say(f"Ignoring a late directive: {directive.action} {tuple(directive.key)}.")
            return
        if directive != known:
            attempt, incarnation = directive.key
            self._console.say(f"Directive: {directive.action} attempt {attempt}, incarnation {incarnation}.")
            self._lives.want(directive, is_running=self._program is not None)
        self._parting.hears_of(directive.key)
        self._lives.settle_past(directive)
        while self._waiting_faults:
            self._lives.tell_fault(directive.key, self._waiting_faults.pop(0))
        self._reconcile()

    def _on_prepared(self, prepared: Prepared) -> None:
        self._setting_up = False
        if self._stopping:
            return
        if isinstance(prepared, Failure):
            self._on_setup_failed(prepared)
        elif not self._lives.is_set_up:
            self._lives.set_up()
        if not isinstance(prepared, Failure):
            self._begin(prepared)
        self._reconcile()

    def _begin(self, secrets: Mapping[str, str]) -> None:
        """What is desired by now, as soon as no other host of the slice runs anything older."""
        to_begin = self._lives.to_begin
        if to_begin is None:
            return
        left_s = self._parting.left_s
        if left_s:
            self._console.say(f"Waiting {left_s:.0f} s for what the other hosts still run of an earlier incarnation.")
            self._setting_up = True
            self._inbox.later(left_s, functools.partial(self._on_prepared, secrets))
        else:
            self._start(to_begin, secrets)

    def _on_setup_failed(self, failure: Failure) -> None:
        self._console.say(f"Setting up failed ({failure.cause}): {failure.error['message']}")
        desired = self._lives.desired
        if desired is None or desired.action != "run":
            return  # tried again when something is desired
        self._lives.begin(desired.key)
        ended = Ended(failure.exit_status, error=failure.error, tail=failure.tail, cause=failure.cause)
        self._lives.tell_exit(desired.key, ended)

    def _on_program_ended(self, key: Key, ended: Ended) -> None:
        self._program = None
        self._running = None
        self._departure.on_idle()
        if self._unwanted:
            self._console.say(f"Module ended on purpose with {ended.how}.")
        else:
            self._tell_end(key, ended)
        self._reconcile()

    def _tell_end(self, key: Key, ended: Ended) -> None:
        is_going = self._is_going(key)
        if is_going:
            self._console.say(f"Module ended with {ended.how}, because its VM goes.")
        elif ended.exit_status == 0:
            self._console.say("Module completed; cleaning up.")
            self._console.say("Clean up finished.")
            self._console.say("Task completed successfully.")
        else:
            if self._launcher.command:
                self._console.complain(ended.told_of(self._launcher.command))
            self._console.say(f"Module ended with {ended.how}{', out of memory' if ended.out_of_memory else ''}.")
        told = replace(ended, cause="vm_stopping") if is_going else ended
        tell = functools.partial(self._lives.tell_exit, key, told)
        if is_going and not self._stopping:
            self._last_word = (key, tell)
            self._inbox.later(LAST_WORD_S, self._say_last_word)
        else:
            tell()

    def _say_last_word(self) -> None:
        """Tells the exit of a program that was asked to save, unless another incarnation has begun since."""
        if self._last_word is not None:
            key, tell = self._last_word
            self._last_word = None
            if self._lives.begun == key:
                tell()

    def _on_shutdown(self) -> None:
        if not self._stopping:
            self._console.say("The VM is shutting down.")
            self._stopping = True
            self._setup.cancel()
            self._launcher.cancel()
        self._reconcile()

    # What follows.

    def _reconcile(self) -> None:
        """Takes the next step from what runs to what is desired. Repeated after everything that happens."""
        desired = self._lives.desired
        to_begin = self._lives.to_begin
        if self._program is not None:
            self._unwanted |= desired is None or desired.action != "run" or desired.key != self._running
            if self._unwanted or self._stopping:
                self._program.end(self._gang.grace_s)
        elif self._stopping:
            self._say_last_word()
            self._report.flush(FLUSH_S)
            self._over = True
        elif to_begin is None:
            pass
        elif not self._setting_up:
            self._setting_up = True
            self._inbox.thread(functools.partial(self._prepare, is_installed=self._lives.is_set_up))

    def _start(self, key: Key, secrets: Mapping[str, str]) -> None:
        self._lives.begin(key)
        self._report.ready(key)
        self._unwanted = False
        desired = self._lives.desired
        try:
            program = self._launcher.start(key, secrets, desired.slices if desired else ())
        except (OSError, ValueError) as error:  # arguments too long, a null character in them
            problem = {"type": type(error).__name__, "message": str(error), "frame": ""}
            self._lives.tell_exit(key, Ended(126, error=problem, tail=str(error)))
            return
        self._program = program
        self._running = key
        self._inbox.thread(functools.partial(self._await_end, key, program))

    def _ask_to_save(self) -> bool:
        """Tells the program that its VM goes; whether there is one."""
        if self._program is None:
            return False
        self._asked_to_save = self._running
        self._console.say(f"Asking the program to save: {self._gang.checkpoint_signal.name}.")
        self._program.notify(self._gang.checkpoint_signal)
        return True

    def _is_going(self, key: Key) -> bool:
        """Whether the end of this incarnation is its VM's doing, whatever the program made of it, exit 0 included: one that
        was asked to save has saved, and has not completed."""
        return self._stopping or (self._departure.is_announced and self._asked_to_save == key)

    def _tell_fault(self, cause: str) -> None:
        desired = self._lives.desired
        if desired is None:
            self._waiting_faults.append(cause)
        else:
            self._lives.tell_fault(desired.key, cause)

    # Other threads.

    def _await_end(self, key: Key, program: Running) -> None:
        """In a thread of its own. A shutdown may signal the program and this agent at once: an end that SIGTERM
        explains waits for the agent's own signal, or it would be taken for the program's doing."""
        ended = self._launcher.wait(key, program)
        if ended.signal == signal.SIGTERM or ended.exit_status in (0, 128 + signal.SIGTERM):
            time.sleep(SHUTDOWN_NOTICE_S)
        self._inbox.post(self._on_program_ended, key, ended)

    def _prepare(self, *, is_installed: bool) -> None:
        """In a thread of its own."""
        self._inbox.post(self._on_prepared, self._setup.prepare(is_installed=is_installed))
