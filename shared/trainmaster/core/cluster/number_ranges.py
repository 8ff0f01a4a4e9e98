"""Number ranges: the short form of a list whose texts differ only in a number.

    ["w-0.zone:2222", "w-1.zone:2222", …]  ──►  {"head": "w-", "first": 0, "count": 1000, "tail":
    ".zone:2222"}

With number ranges, the metadata of a VM does not grow with the number of replicas. Names of VMs,
DNS names and placeholders of slices form such ranges. Other lists stay as they are. The agent
expands the ranges (`trainmaster.agent.model.vm_config`). docs/interfaces.md, section 3.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_NUMBER: Final = re.compile(r"[0-9]+")
_LENGTH_MIN: Final = 3
"""A shorter list is not longer than its number range, and is easier to read."""

NumberRange = dict[str, str | int]


def as_number_range(texts: Sequence[str]) -> NumberRange | list[str]:
    """Return the number range of these texts; the texts as a list if they do not form one."""
    if len(texts) < _LENGTH_MIN:
        return list(texts)
    for match in _NUMBER.finditer(texts[0]):
        head = texts[0][: match.start()]
        first = int(match[0])
        tail = texts[0][match.end() :]
        if all(text == f"{head}{first + offset}{tail}" for offset, text in enumerate(texts)):
            return {"head": head, "first": first, "count": len(texts), "tail": tail}
    return list(texts)
