"""What must hold in every history, and the error that a broken invariant raises."""

from __future__ import annotations


class ViolationError(AssertionError):
    """An invariant does not hold. The text starts with the invariant's name."""
