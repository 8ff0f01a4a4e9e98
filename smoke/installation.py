"""The installing and removing steps: what exists only while the smoke test runs."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol

from smoke.world import World


class Installation(Protocol):
    """Something to test. What `install` creates is removed at the end of the block, whatever happened in it."""

    def running(self) -> AbstractContextManager[World]:
        """Install, and remove everything at the end. Raises StepError if installing or removing fails."""
        ...
