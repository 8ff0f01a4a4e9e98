"""Ending a program that prints nothing for too long: it hangs, and no exit would ever be reported.

Parameter servers print nothing, so their configuration has no limit. Among the hosts of a TPU slice, only the first one
is watched, because programs usually print on the first process only.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainmaster.agent.control.launcher import RunningProgram
    from trainmaster.agent.model.inbox import Inbox
    from trainmaster.agent.model.vm_config import AgentIdentity, IncarnationKey
    from trainmaster.agent.reporting.serial_console import Console


class StallWatch:
    """Use it on the main thread only."""

    def __init__(self, identity: AgentIdentity, inbox: Inbox, console: Console) -> None:
        is_watched = identity.host is None or identity.host.number == 0
        self._timeout_s = identity.config.stall_timeout_s if is_watched else None
        self._grace_s = identity.config.grace_s
        self._inbox = inbox
        self._console = console
        self._watched: IncarnationKey | None = None
        self._stalled: IncarnationKey | None = None

    def start(self, key: IncarnationKey, program: RunningProgram) -> None:
        """Watch the program of this incarnation from now on."""
        self._watched = key
        if self._timeout_s is not None:
            self._inbox.post_later(self._timeout_s, functools.partial(self._check, key, program))

    def stop(self) -> None:
        """Stop watching, because the program has ended or is being ended."""
        self._watched = None

    def has_stalled(self, key: IncarnationKey) -> bool:
        """Return whether the program of this incarnation was ended because it printed nothing."""
        return key == self._stalled

    def _check(self, key: IncarnationKey, program: RunningProgram) -> None:
        """End the program if it has been silent for long enough; otherwise check again at the earliest useful time."""
        if key != self._watched or self._timeout_s is None:
            return
        left_s = self._timeout_s - program.silent_s
        if left_s > 0:
            self._inbox.post_later(left_s, functools.partial(self._check, key, program))
            return
        self._stalled = key
        self._console.log(f"The program has printed nothing for {self._timeout_s:.0f} s (stallTimeout): ending it.")
        program.end(self._grace_s)
