"""The limits that actions are charged to."""

from __future__ import annotations

from enum import StrEnum


class Budget(StrEnum):
    """The limit that an action is charged to."""

    FREE = "free"
    RESTARTS = "restarts"
    RERUNS = "reruns"
    INTERNAL = "internal"
