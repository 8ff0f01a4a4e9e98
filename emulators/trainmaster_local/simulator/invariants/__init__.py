"""Checks of what must hold in every history. A check that fails raises `ViolationError`."""

from __future__ import annotations


class ViolationError(AssertionError):
    """An invariant does not hold. The text starts with the invariant's name."""
