"""Follow one job at the terminal: its state, its replicas, what they print, and each decision in one line.

Reads what is stored and what the consoles show; it changes nothing and may be stopped and started at will.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console
from rich.markup import escape

from shared.core.decisions import MarkReady, Rule
from shared.core.ledger import LedgerEntry
from shared.core.model.job import Job, ReplicaState, State
from shared.core.reconcile.plan import Vm
from shared.errors import TemporaryError
from shared.ports import Fleet, Store

POLL_S: Final = 0.3
COLOURS: Final = {"SUCCEEDED": "bold green", "FAILED": "bold red", "CANCELLED": "bold yellow"}
AGENT_PREFIX: Final = "[trainmaster]"
INTERESTING: Final = re.compile(r"\b(epoch|loss|accuracy|resum\w*)\b", re.IGNORECASE)


@dataclass
class Report:
    """One line per thing that happened, with the seconds since the start."""

    console: Console = field(default_factory=lambda: Console(highlight=False, soft_wrap=True))
    started: float = field(default_factory=time.monotonic)

    def line(self, who: str, text: str, style: str = "") -> None:
        seconds = time.monotonic() - self.started
        said = escape(text)
        self.console.print(
            f"[dim]{seconds:7.1f} s[/]  [cyan]{who:<9}[/]  " + (f"[{style}]{said}[/]" if style else said)
        )


@dataclass
class Watch:
    """`tick` looks once; `follow` looks until the job has ended. `epochs` counts the progress lines of the primary."""

    store: Store
    fleet: Fleet
    job_id: str
    report: Report
    epochs: int = 0
    _state: str = ""
    _replicas: str = ""
    _seen: set[str] = field(default_factory=set)
    _consoles: dict[tuple[str, str], tuple[int, str]] = field(default_factory=dict)

    def follow(self) -> Iterator[Job]:
        """The job after each look, the last one ended."""
        while True:
            state = self.tick()
            yield state.job
            if state.job.state.is_terminal:
                return
            time.sleep(POLL_S)

    def tick(self) -> State:
        loaded = self.store.load_attempt(self.job_id)
        if loaded is None:
            raise TemporaryError(f"job {self.job_id} cannot be read")
        state = loaded.state
        self._show_programs(state)
        for entry in self.store.ledger(self.job_id):
            if entry.key not in self._seen:
                self._seen.add(entry.key)
                self._show_decision(entry)
        self._show_states(state)
        return state

    def _show_states(self, state: State) -> None:
        word = state.job.state.value
        if word != self._state:
            self._state = word
            self.report.line("job", f"{self.job_id} is {word}", COLOURS.get(word, "bold"))
        replicas = "  ".join(
            f"{each.replica_id.words} {each.state}"
            + (f" (incarnation {each.incarnation})" if each.incarnation > 1 else "")
            for each in state.replicas
        )
        if replicas != self._replicas and not state.job.state.is_terminal:
            self._replicas = replicas
            self.report.line("replicas", replicas, "dim")

    def _show_decision(self, entry: LedgerEntry) -> None:
        decision = entry.decision
        if isinstance(decision, MarkReady) or (decision.rule is Rule.STALE and decision.kind == "ignore"):
            return
        rule = f" [rule {int(decision.rule)}]" if decision.rule else ""
        self.report.line("decision", f"{decision.text}{rule}", "yellow" if decision.rule else "")

    def _show_programs(self, state: State) -> None:
        try:
            vms = self.fleet.list_vms(self.job_id)
        except TemporaryError:
            return
        running = {each.replica_id for each in state.replicas if each.state is not ReplicaState.WAITING}
        for vm in vms:
            for line in self._new_lines(vm):
                if line.startswith(AGENT_PREFIX) or not INTERESTING.search(line):
                    continue
                if vm.replica_id == state.job.plan.primary:
                    self.epochs += 1
                elif vm.replica_id in running and "resum" not in line:
                    continue
                self.report.line(vm.replica_id.words, line)

    def _new_lines(self, vm: Vm) -> list[str]:
        """Whole lines only: what is still being written waits for the next look."""
        key = (vm.name, vm.instance_id)
        start, rest = self._consoles.get(key, (0, ""))
        try:
            text, following = self.fleet.serial_output(vm, start)
        except TemporaryError:
            return []
        *lines, rest = (rest + text).split("\n")
        self._consoles[key] = (following, rest)
        return lines
