"""`trainmaster orphans`: VMs and TPU nodes without a live job, as `provision` found them."""

from __future__ import annotations

from dataclasses import asdict

from trainmaster.cli.installation import open_store
from trainmaster.cli.options import OutputFormat
from trainmaster.cli.output import Format, print_result


def orphans(form: OutputFormat = Format.TABLE) -> None:
    """List VMs and TPU nodes without a live job. An orphan is deleted if it is still one a minute
    later.
    """
    listed = open_store().orphans()
    rows = [
        (
            vm.name,
            vm.zone,
            vm.instance_id,
            vm.label,
            vm.first_seen_at.strftime("%Y-%m-%dT%H:%M:%SZ"),
        )
        for vm in listed
    ]
    print_result(form, map(asdict, listed), ("vm", "zone", "id", "job label", "first seen"), rows)
