"""Follow one job at the terminal: state, replicas, output, and each decision in one line.

The monitor only reads the stored state and the serial consoles. It may be stopped and started at
any time.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.markup import escape

from trainmaster.core.actions import MarkReady
from trainmaster.core.decisions import Rule
from trainmaster.core.ledger import LedgerEntry
from trainmaster.core.model.job import Job, State
from trainmaster.core.model.members import state_word
from trainmaster.core.model.replica import Replica, ReplicaState
from trainmaster.core.model.vm import Vm
from trainmaster.errors import TemporaryError
from trainmaster.ports import Fleet, Store
from trainmaster.presentation.printable import make_visible

POLL_S: Final = 0.3
"""Pause between two reads of the job, in seconds."""
COLOURS: Final = {"SUCCEEDED": "bold green", "FAILED": "bold red", "CANCELLED": "bold yellow"}
"""Style of a job's final state."""
AGENT_PREFIX: Final = "[trainmaster]"
"""Beginning of the agent's own lines in a serial console."""
PROGRESS: Final = re.compile(r"\b(epoch|loss|accuracy|resum\w*)\b", re.IGNORECASE)
"""Lines of a program that are shown."""


@dataclass
class Report:
    """Prints one line for each thing that happens, with the seconds since the start."""

    console: Console = field(default_factory=lambda: Console(highlight=False, soft_wrap=True))
    started: float = field(default_factory=time.monotonic)

    def line(self, source: str, text: str, style: str = "") -> None:
        """Print one line. `source`: what it is about. `style`: of rich; empty: plain."""
        seconds = time.monotonic() - self.started
        escaped = escape(make_visible(text))
        styled = f"[{style}]{escaped}[/]" if style else escaped
        self.console.print(f"[dim]{seconds:7.1f} s[/]  [cyan]{source:<9}[/]  {styled}")


@dataclass
class JobMonitor:
    """Reports what is new about one job."""

    store: Store
    fleet: Fleet
    job_id: str
    report: Report
    epochs: int = 0
    """Number of progress lines of the primary so far."""
    _state: str = ""
    """The state of the job that was reported last."""
    _replicas: str = ""
    """The line about replicas that was reported last."""
    _reported_entries: set[str] = field(default_factory=set)
    """Keys of the ledger entries (events with their decisions) that were reported."""
    _consoles: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)
    """Next position and incomplete last line of each serial console."""

    def follow(self) -> Iterator[Job]:
        """Poll until the job has ended. Yield the job after every poll."""
        while True:
            state = self.poll()
            yield state.job
            if state.job.state.is_terminal:
                return
            time.sleep(POLL_S)

    def poll(self) -> State:
        """Report what is new, and return the job's state.

        Raises TemporaryError if it cannot be read.
        """
        loaded = self.store.load_attempt(self.job_id)
        if loaded is None:
            raise TemporaryError(f"job {self.job_id} cannot be read")
        state = loaded.state
        self._report_output(state)
        for entry in self.store.ledger(self.job_id):
            if entry.key not in self._reported_entries:
                self._reported_entries.add(entry.key)
                self._report_decision(entry)
        self._report_states(state)
        return state

    def _report_states(self, state: State) -> None:
        """Report the state of the job, and those of the replicas, if they have changed."""
        word = state.job.state.value
        if word != self._state:
            self._state = word
            self.report.line("job", f"{self.job_id} is {word}", COLOURS.get(word, "bold"))
        replicas = "  ".join(_describe(state.job, replica) for replica in state.replicas)
        if replicas != self._replicas and not state.job.state.is_terminal:
            self._replicas = replicas
            self.report.line("replicas", replicas, "dim")

    def _report_decision(self, entry: LedgerEntry) -> None:
        """Report a decision, unless it only notes a ready VM, or ignores a late event."""
        decision = entry.decision
        is_ignored = decision.rule is Rule.STALE and decision.action.kind == "ignore"
        if is_ignored or isinstance(decision.action, MarkReady):
            return
        rule = f" [rule {int(decision.rule)}]" if decision.rule else ""
        self.report.line("decision", f"{decision.text}{rule}", "yellow" if decision.rule else "")

    def _report_output(self, state: State) -> None:
        """Report the primary's lines about progress, and those of others about resumed training.

        Of a replica whose agent has not reported yet, all lines about progress are reported.
        """
        try:
            vms = self.fleet.list_vms(self.job_id)
        except TemporaryError:
            return
        started = {
            replica.replica_id
            for replica in state.replicas
            if replica.state is not ReplicaState.WAITING
        }
        for vm in vms:
            for line in self._new_lines(vm):
                if line.startswith(AGENT_PREFIX) or not PROGRESS.search(line):
                    continue
                if vm.replica_id == state.job.plan.primary:
                    self.epochs += 1
                elif vm.replica_id in started and "resum" not in line:
                    continue
                self.report.line(vm.replica_id.words, line)

    def _new_lines(self, vm: Vm) -> list[str]:
        """Return the lines that were completed since the last poll."""
        key = (vm.name, vm.instance_id)
        start, incomplete = self._consoles.get(key, (0, ""))
        try:
            text, next_start = self.fleet.serial_output(vm, start)
        except TemporaryError:
            return []
        *lines, incomplete = (incomplete + text).split("\n")
        self._consoles[key] = (next_start, incomplete)
        return lines


def _describe(job: Job, replica: Replica) -> str:
    """Return name and state of a replica, and which execution of its program runs, if not the
    first.
    """
    incarnation = f" (incarnation {replica.incarnation})" if replica.incarnation > 1 else ""
    return f"{replica.replica_id.words} {state_word(job, replica)}{incarnation}"
