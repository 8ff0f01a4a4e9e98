"""Reporting how an incarnation (one execution of the program) ended, after the announcement that
explains it.

    preemption announced ──► program saves and exits ──► maintenance event ──► replica-exit
                                             └───────────── DELAY_S ────────────────┘

A program that was asked to save ends because its VM is about to stop. The maintenance event says
more about that than the exit does, so it should arrive first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trainmaster.agent.control.run_state import RunState
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.model.results import ProgramExit
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.reporting.serial_console import Console, Stream

DELAY_S = 5.0  # from the exit of a program that was asked to save to its report


class ExitReporter:
    """Stores the exits of programs, and reports them. Use it on the main thread only."""

    def __init__(self, inbox: Inbox, run_state: RunState, console: Console) -> None:
        self._inbox = inbox
        self._run_state = run_state
        self._console = console
        self._is_delayed = False

    def report(self, program_exit: ProgramExit, command: Sequence[str]) -> None:
        """Report a program that ended by itself.

        `command`: its command line, if it has one to show.
        """
        if program_exit.exit_status == 0:
            self._console.log("Module completed; cleaning up.")
            self._console.log("Clean up finished.")
            self._console.log("Task completed successfully.")
        else:
            if command:
                self._console.log(program_exit.describe_failure(command), Stream.AGENT_ERROR)
            memory = ", out of memory" if program_exit.out_of_memory else ""
            self._console.log(f"Module ended with {program_exit.how}{memory}.")
        self.record_and_report(program_exit)

    def report_end(self, program_exit: ProgramExit, why: str) -> None:
        """Report a program that this agent ended or asked to save. `why`: for the log."""
        self._console.log(f"Module ended with {program_exit.how}, {why}.")
        self.record_and_report(program_exit)

    def report_vm_stopping(self, program_exit: ProgramExit) -> None:
        """Report a program that ended because its VM stops: in DELAY_S, or at the next
        `report_delayed`.
        """
        self._console.log(f"Module ended with {program_exit.how}, because its VM is about to stop.")
        self._run_state.record_exit(replace(program_exit, cause="vm_stopping"))
        self._is_delayed = True
        self._inbox.post_later(DELAY_S, self.report_delayed)

    def report_delayed(self) -> None:
        """Report the delayed exit now, unless another exit was reported meanwhile.

        As for every exit, `RunState` reports nothing once a newer directive has superseded it.
        """
        if self._is_delayed:
            self._is_delayed = False
            self._run_state.report_exit()

    def record_and_report(
        self, program_exit: ProgramExit, unstarted: IncarnationKey | None = None
    ) -> None:
        """Store the exit and report it.

        `unstarted`: the incarnation that could not be set up; None: the one that was started last.
        """
        self._is_delayed = False
        self._run_state.record_exit(program_exit, unstarted)
        self._run_state.report_exit()
