"""Whether a run of the smoke test confirms the assumptions: one finding for each row of
the table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from smoke.assumptions import ASSUMPTIONS, Assumption


class Verdict(StrEnum):
    CONFIRMED = "ok"
    DIFFERENT = "DIFFERENT"
    NOT_SEEN = "not seen"


@dataclass(frozen=True, slots=True)
class Finding:
    """One row of the result."""

    assumption: Assumption
    verdict: Verdict
    seen: str


def compare(facts: Mapping[str, str], *, is_local: bool) -> list[Finding]:
    """Return one finding for each assumption."""
    return [_compare(assumption, facts, is_local=is_local) for assumption in ASSUMPTIONS]


def _compare(assumption: Assumption, facts: Mapping[str, str], *, is_local: bool) -> Finding:
    seen = facts.get(assumption.key)
    if is_local and assumption.local:
        return Finding(assumption, Verdict.NOT_SEEN, assumption.local)
    if seen is None:
        is_read = not re.match("it (needs|takes) ", assumption.read_from)
        reason = "its step failed or was skipped" if is_read else assumption.read_from
        return Finding(assumption, Verdict.NOT_SEEN, reason)
    return Finding(
        assumption, Verdict.CONFIRMED if assumption.holds(seen) else Verdict.DIFFERENT, seen
    )
