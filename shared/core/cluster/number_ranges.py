"""Lists of numbered texts as a rule, so that the metadata of a VM does not grow with the number of replicas.

    ["w-0.zone:2222", "w-1.zone:2222", …]  ──►  {"head": "w-", "first": 0, "count": 1000, "tail": ".zone:2222"}

Names of VMs, DNS names and placeholders of slices follow such a rule. Other lists stay as they are. The agent expands
the rules (`shared.agent.control.number_ranges`). docs/interfaces.md, section 3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_NUMBER: Final = re.compile(r"[0-9]+")
_LENGTH_MIN: Final = 3
"""A shorter list is no longer than its rule, and easier to read."""

NumberRange = dict[str, str | int]


def as_number_range(texts: Sequence[str]) -> NumberRange | list[str]:
    """Return the rule of these texts, or a list of them if they follow none."""
    if len(texts) < _LENGTH_MIN:
        return list(texts)
    for match in _NUMBER.finditer(texts[0]):
        head, first, tail = texts[0][: match.start()], int(match[0]), texts[0][match.end() :]
        if all(text == f"{head}{first + offset}{tail}" for offset, text in enumerate(texts)):
            return {"head": head, "first": first, "count": len(texts), "tail": tail}
    return list(texts)
