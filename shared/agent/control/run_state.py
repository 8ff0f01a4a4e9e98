"""Which of the replica's incarnations this VM has begun, and how they ended: written down before it happens or is told."""

from __future__ import annotations

import functools
from dataclasses import asdict
from typing import TYPE_CHECKING

from shared.agent.control.state_file import State
from shared.agent.control.vm_config import supersedes
from shared.agent.http.calls import utc_now
from shared.agent.program.program import Ended

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from shared.agent.control.vm_config import Directive, Key
    from shared.agent.reporting.events import Report
    from shared.agent.reporting.serial_console import Console


class Lives:
    """The memory of the agent, which outlives it and a reboot; on the main thread only."""

    def __init__(self, file: Path, instance_id: str, report: Report, console: Console) -> None:
        self._file = file
        self._report = report
        self._console = console
        self._state = State.load(file, instance_id)
        self._past_settled = False

    @property
    def desired(self) -> Directive | None:
        return self._state.desired

    @property
    def begun(self) -> Key | None:
        """The last incarnation begun. From any thread."""
        return self._state.started

    @property
    def is_set_up(self) -> bool:
        return self._state.setup_done

    def set_up(self) -> None:
        self._state.setup_done = True
        self._save()

    @property
    def to_begin(self) -> Key | None:
        """The incarnation that is desired and was not begun yet: a incarnation is lived once."""
        desired = self._state.desired
        begins = desired and desired.action == "run" and supersedes(desired.key, self._state.started)
        return desired.key if desired and begins else None

    def want(self, directive: Directive, *, is_running: bool) -> None:
        """Notes a directive that differs from the last one."""
        self._state.desired = directive
        self._report.drop_before(directive.key)
        if supersedes(directive.key, self._state.started) or (is_running and directive.action != "run"):
            self._close()
        self._save()

    def begin(self, key: Key) -> None:
        """Written down before it happens: after a crash this incarnation is known to be used up."""
        self._state.started = key
        self._state.closed = False
        self._state.exit = None
        self._save()

    def settle_past(self, directive: Directive) -> None:
        """Once, at the first directive: tells how the incarnation ended that an earlier agent, or boot, left unfinished."""
        if self._past_settled:
            return
        self._past_settled = True
        key = self._state.started
        if key is None or self._state.closed or supersedes(directive.key, key):
            return
        if self._state.exit is not None:
            self._put(key, self._state.exit)
        elif directive.action == "run":
            self._console.say("The VM or its agent was restarted under the program.")
            self.tell_exit(key, Ended(cause="vm_restarted"))
        else:
            self._close()
            self._save()

    def tell_exit(self, key: Key, ended: Ended) -> None:
        fact = {"at": utc_now(), **asdict(ended)}
        metric = fact.pop("measurement")
        self._state.exit = {**fact, "metric": metric} if metric else fact
        self._save()
        self._put(key, self._state.exit)

    @property
    def announced(self) -> list[str]:
        """The faults of this VM that were told and accepted."""
        return list(self._state.announced)

    def tell_fault(self, key: Key, cause: str) -> None:
        self._report.fault(key, cause, functools.partial(self._on_fault_accepted, cause))

    def _put(self, key: Key, fact: Mapping[str, object]) -> None:
        self._report.exit(key, fact, functools.partial(self._on_exit_accepted, key))

    def _on_exit_accepted(self, key: Key) -> None:
        if key == self._state.started:
            self._close()
            self._save()
        self._console.say("The exit is reported.")

    def _on_fault_accepted(self, cause: str) -> None:
        self._state.announced.append(cause)
        self._save()
        self._console.say(f"The {cause} is reported.")

    def _close(self) -> None:
        self._state.closed = True
        self._state.exit = None

    def _save(self) -> None:
        try:
            self._state.save(self._file)
        except OSError as error:  # a full disk must not end the training, nor hide its exit
            self._console.say(f"The state cannot be written: {error}")
