"""The installation that the smoke test tries. It exists only while the test runs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from smoke.world import World


class Installation(Protocol):
    """An installation that is created for the smoke test, and removed at its end, whatever happened in between."""

    def running(self) -> AbstractContextManager[World]:
        """Install, and remove everything at the end. Raises StepError if installing or removing fails."""
        ...
