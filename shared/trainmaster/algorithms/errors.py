"""Errors that a user has to repair before an algorithm can run."""

from __future__ import annotations


class DataError(Exception):
    """Data that an algorithm cannot train on.

    The text names the file, the column or the value, and the fix.
    """
