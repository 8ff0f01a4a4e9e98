"""Boot disk types: one that the machine cannot boot from is refused, not replaced."""

from __future__ import annotations

import pytest

from tests.unit.jobspec.bodies import custom
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.problems import InvalidJob


@pytest.mark.parametrize(
    ("machine", "requested", "resolved"),
    [
        ("n1-standard-4", None, "pd-ssd"),
        ("n1-standard-4", "pd-standard", "pd-standard"),
        ("c3-standard-8", None, "pd-ssd"),
        ("c3-standard-8", "hyperdisk-balanced", "hyperdisk-balanced"),
        ("g2-standard-8", None, "pd-ssd"),
        ("n4-standard-8", None, "hyperdisk-balanced"),
        ("a3-ultragpu-8g", None, "hyperdisk-balanced"),
    ],
)
def test_accepted_job_has_the_requested_boot_disk_type_or_its_machines_default(
    machine: str, requested: str | None, resolved: str
) -> None:
    disk = {"diskConfig": {"bootDiskType": requested}} if requested else {}
    # Some of these machines are sold as Spot VMs only.
    document = {**custom(masterType=machine, masterConfig=disk), "trainmaster": {"spot": "all"}}
    spec = accept(document, default_job_id=None)
    assert spec.plan.groups[0].boot_disk_type == resolved


@pytest.mark.parametrize(
    ("machine", "requested", "allowed"),
    [
        ("n1-standard-4", "hyperdisk-balanced", "pd-balanced or pd-standard or pd-ssd"),
        ("c3-standard-8", "pd-standard", "pd-balanced or pd-ssd or hyperdisk-balanced"),
        ("g2-standard-8", "pd-standard", "pd-balanced or pd-ssd"),
        ("c4-standard-8", "pd-ssd", "hyperdisk-balanced"),
        ("a4-highgpu-8g", "pd-standard", "hyperdisk-balanced"),
    ],
)
def test_boot_disk_type_that_machine_cannot_boot_from_is_refused(
    machine: str, requested: str, allowed: str
) -> None:
    document = custom(masterType=machine, masterConfig={"diskConfig": {"bootDiskType": requested}})
    with pytest.raises(InvalidJob, match=f"must be {allowed} on {machine}, not {requested}"):
        accept(document, default_job_id=None)
