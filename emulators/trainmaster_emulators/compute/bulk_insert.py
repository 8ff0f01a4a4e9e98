"""The VM names of a bulk insert, given one by one."""

from __future__ import annotations

from typing import Final

from trainmaster_emulators.machines.compute_errors import Json, invalid

BULK_COUNT_MAX: Final = 5000


def bulk_names(body: Json) -> list[str]:
    """Return the names of the VMs that a BulkInsertInstanceResource requests.

    Raises ApiError (400).
    """
    count = int(body.get("count") or 0)
    per_instance = body.get("perInstanceProperties") or {}
    if not 1 <= count <= BULK_COUNT_MAX:
        raise invalid("resource.count", count, f"Must be between 1 and {BULK_COUNT_MAX}.")
    if int(body.get("minCount") or count) > count:
        raise invalid("resource.minCount", body["minCount"], "Must not be greater than count.")
    if body.get("namePattern"):
        raise invalid(
            "resource.namePattern", body["namePattern"], "Only 'perInstanceProperties' is emulated."
        )
    if len(per_instance) != count:
        why = f"The number of entries must match count ({count})."
        raise invalid("resource.perInstanceProperties", len(per_instance), why)
    return [str((value or {}).get("name") or key) for key, value in per_instance.items()]
