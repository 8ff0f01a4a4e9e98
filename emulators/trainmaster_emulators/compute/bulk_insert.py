"""The VM names of a bulk insert: given one by one, or made from a pattern."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from trainmaster_emulators.machines.api_errors import ApiError, Json, invalid

BULK_COUNT_MAX: Final = 5000
PATTERN_DIGITS_MAX: Final = 18


def bulk_names(body: Json, existing_names: Collection[str]) -> list[str]:
    """Return the names of the VMs that a BulkInsertInstanceResource requests. Raises ApiError (400).

    `existing_names`: the VMs of the zone, after which a pattern continues.
    """
    count = int(body.get("count") or 0)
    per_instance = body.get("perInstanceProperties") or {}
    pattern = str(body.get("namePattern") or "")
    if not 1 <= count <= BULK_COUNT_MAX:
        raise invalid("resource.count", count, f"Must be between 1 and {BULK_COUNT_MAX}.")
    if int(body.get("minCount") or count) > count:
        raise invalid("resource.minCount", body["minCount"], "Must not be greater than count.")
    if per_instance and pattern:
        message = "Only one of 'namePattern' and 'perInstanceProperties' can be specified."
        raise ApiError(400, "invalid", message)
    if per_instance:
        if len(per_instance) != count:
            why = f"The number of entries must match count ({count})."
            raise invalid("resource.perInstanceProperties", len(per_instance), why)
        return [str((value or {}).get("name") or key) for key, value in per_instance.items()]
    return _numbered_names(pattern, count, existing_names)


def _numbered_names(pattern: str, count: int, existing_names: Collection[str]) -> list[str]:
    """Replace the `#`s, which stand for digits. Numbers continue after the largest existing one."""
    runs = re.findall(r"#+", pattern)
    if len(runs) != 1 or len(runs[0]) > PATTERN_DIGITS_MAX:
        raise invalid(
            "resource.namePattern",
            pattern,
            f"Must contain one sequence of up to {PATTERN_DIGITS_MAX} '#' characters.",
        )
    before, after = pattern.split(runs[0])
    numbered = re.compile(re.escape(before) + r"(\d+)" + re.escape(after))
    numbers = [int(match[1]) for name in existing_names if (match := numbered.fullmatch(name))]
    first = max(numbers, default=0) + 1
    return [f"{before}{number:0{len(runs[0])}d}{after}" for number in range(first, first + count)]
