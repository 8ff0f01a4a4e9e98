from __future__ import annotations

from dataclasses import replace

import pytest

from shared.core.model.plan import Accelerator, TaskGroup
from shared.core.model.replica_id import TaskType
from shared.core.reconcile.machine_families import (
    boot_disk_type,
    boot_disk_types,
    goes_side_by_side,
    has_gpus,
    migrates,
)
from tests.support.jobs import a_plan

T4 = Accelerator("nvidia-tesla-t4", 1)


def a_group(machine_type: str, gpu: Accelerator | None = None, count: int = 4) -> TaskGroup:
    return TaskGroup(TaskType.WORKER, count, machine_type, gpu)


@pytest.mark.parametrize(
    ("machine_type", "asked", "given"),
    [
        ("n1-standard-4", "pd-ssd", "pd-ssd"),
        ("n1-standard-4", "pd-standard", "pd-standard"),
        ("n1-standard-4", "hyperdisk-balanced", "pd-balanced"),
        ("a2-highgpu-8g", "pd-standard", "pd-standard"),
        ("c3-standard-8", "pd-ssd", "pd-ssd"),
        ("c3-standard-8", "pd-standard", "pd-balanced"),
        ("c3-standard-8", "hyperdisk-balanced", "hyperdisk-balanced"),
        ("g2-standard-8", "pd-standard", "pd-balanced"),
        ("g2-standard-8", "hyperdisk-balanced", "pd-balanced"),
        ("a3-highgpu-8g", "pd-standard", "pd-balanced"),
        ("a3-ultragpu-8g", "pd-ssd", "hyperdisk-balanced"),
        ("a4-highgpu-8g", "pd-standard", "hyperdisk-balanced"),
        ("c4-standard-8", "pd-ssd", "hyperdisk-balanced"),
        ("n4-standard-8", "pd-standard", "hyperdisk-balanced"),
    ],
)
def test_a_boot_disk_is_what_was_asked_for_or_the_nearest_that_the_machine_takes(
    machine_type: str, asked: str, given: str
) -> None:
    assert boot_disk_type(machine_type, asked) == given
    assert given in boot_disk_types(machine_type)


@pytest.mark.parametrize(
    ("group", "gpus"),
    [
        (a_group("n1-standard-4"), False),
        (a_group("n1-standard-4", T4), True),
        (a_group("g2-standard-4"), True),
        (a_group("a2-highgpu-1g"), True),
        (a_group("e2-standard-4"), False),
    ],
)
def test_only_what_has_no_gpu_and_is_no_spot_vm_migrates(group: TaskGroup, *, gpus: bool) -> None:
    assert has_gpus(group) is gpus
    assert migrates(group, spot=False) is not gpus
    assert not migrates(group, spot=True)


@pytest.mark.parametrize(
    ("group", "together"),
    [
        (a_group("a2-highgpu-8g"), True),
        (a_group("a3-megagpu-8g", count=2), True),
        (a_group("a4-highgpu-8g"), True),
        (a_group("a2-highgpu-8g", count=1), False),
        (a_group("n1-standard-8", T4), False),
        (a_group("c3-standard-8"), False),
    ],
)
def test_gangs_with_a_fast_network_are_placed_side_by_side(group: TaskGroup, *, together: bool) -> None:
    plan = replace(a_plan(), groups=(group,))
    assert goes_side_by_side(plan, group) is together
    assert not goes_side_by_side(replace(plan, reservation="r"), group), "a reservation has its own placement"
