"""The boot disk goes with the machine: what was asked for and does not fit is refused, not replaced."""

from __future__ import annotations

import pytest

from shared.jobspec import InvalidJob, accept
from tests.unit.jobspec.bodies import custom


@pytest.mark.parametrize(
    ("machine", "asked", "given"),
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
def test_a_disk_that_fits_is_taken_and_none_is_the_services_default(
    machine: str, asked: str | None, given: str
) -> None:
    disk = {"diskConfig": {"bootDiskType": asked}} if asked else {}
    spec = accept(custom(masterType=machine, masterConfig=disk), default_job_id=None)
    assert spec.plan.groups[0].boot_disk_type == given


@pytest.mark.parametrize(
    ("machine", "asked", "right"),
    [
        ("n1-standard-4", "hyperdisk-balanced", "pd-balanced or pd-standard or pd-ssd"),
        ("c3-standard-8", "pd-standard", "pd-balanced or pd-ssd or hyperdisk-balanced"),
        ("g2-standard-8", "pd-standard", "pd-balanced or pd-ssd"),
        ("c4-standard-8", "pd-ssd", "hyperdisk-balanced"),
        ("a4-highgpu-8g", "pd-standard", "hyperdisk-balanced"),
    ],
)
def test_a_disk_that_the_machine_cannot_boot_from_is_refused(machine: str, asked: str, right: str) -> None:
    document = custom(masterType=machine, masterConfig={"diskConfig": {"bootDiskType": asked}})
    with pytest.raises(InvalidJob, match=f"must be {right} on {machine}, not {asked}"):
        accept(document, default_job_id=None)
