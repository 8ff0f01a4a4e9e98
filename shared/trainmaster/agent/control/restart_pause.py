"""The pause before the next start of a program that keeps failing soon after its start."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainmaster.agent.model.vm_config import IncarnationKey, ReceivedDirective


class RestartPause:
    """Counts from the first directive for an incarnation. The control plane chooses the duration."""

    def __init__(self) -> None:
        self._key: IncarnationKey | None = None
        self._over_at = 0.0

    def on_directive(self, directive: ReceivedDirective) -> None:
        if directive.key != self._key:
            self._key = directive.key
            self._over_at = time.monotonic() + directive.pause_s

    @property
    def remaining_s(self) -> float:
        """Seconds until the pause is over; 0 if it is."""
        return max(0.0, self._over_at - time.monotonic())
