"""`trainmaster orphans`: VMs and TPU nodes that belong to no job, as `provision` has found them."""

from __future__ import annotations

from dataclasses import asdict

from cli.jobs import Form, open_store
from cli.output import Format, print_json, print_table


def orphans(form: Form = Format.TABLE) -> None:
    """List machines without a living job. Each is deleted when a second look, a minute later, finds it still so."""
    found = open_store().orphans()
    if form is Format.JSON:
        print_json([asdict(orphan) for orphan in found])
        return
    rows = [
        (each.name, each.zone, each.instance_id, each.label, each.first_seen_at.strftime("%Y-%m-%dT%H:%M:%SZ"))
        for each in found
    ]
    print_table(("vm", "zone", "id", "job label", "first seen"), rows)
