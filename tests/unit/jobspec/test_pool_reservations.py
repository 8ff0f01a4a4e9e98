"""The reservation that the worker pools of a CustomJob name becomes that of the job."""

from __future__ import annotations

from typing import Any, Final

import pytest

from trainmaster.core.model.purchase import Reserved
from trainmaster.jobspec.accept import AcceptedSpec, accept
from trainmaster.jobspec.problems import InvalidJob

VALUE: Final = "projects/demo-project/zones/europe-west4-a/reservations/res-1"
NAME: Final = "projects/demo-project/reservations/res-1"
GPU: Final = {
    "machineType": "a3-ultragpu-8g",
    "acceleratorType": "NVIDIA_H200_141GB",
    "acceleratorCount": 8,
}
CPU: Final = {"machineType": "n1-standard-8"}


def affinity(value: str = VALUE, **changes: Any) -> dict[str, Any]:
    return {
        "reservationAffinityType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": [value],
        **changes,
    }


def reserved(value: str = VALUE, machine: dict[str, Any] = GPU, **changes: Any) -> dict[str, Any]:
    return {**machine, "reservationAffinity": affinity(value, **changes)}


def accepted(*machines: dict[str, Any], **extension: Any) -> AcceptedSpec:
    container = {"imageUri": "europe-west4-docker.pkg.dev/demo-project/t/t:1"}
    pools = [
        {"replicaCount": 1, "machineSpec": machine, "containerSpec": container}
        for machine in machines
    ]
    document = {
        "displayName": "res",
        "jobSpec": {"workerPoolSpecs": pools},
        "trainmaster": {"region": "europe-west4", **extension},
    }
    return accept(document, default_job_id=None)


def problems(*machines: dict[str, Any], **extension: Any) -> list[str]:
    with pytest.raises(InvalidJob) as caught:
        accepted(*machines, **extension)
    return [f"{problem.field} {problem.problem}" for problem in caught.value.problems]


POOL: Final = "jobSpec.workerPoolSpecs[{}].machineSpec.reservationAffinity"


@pytest.mark.parametrize("extension", [{}, {"reservation": "res-1"}, {"zones": ["europe-west4-a"]}])
def test_reservation_of_all_pools_is_that_of_the_job(extension: dict[str, Any]) -> None:
    spec = accepted(reserved(), reserved(), **extension)
    assert [group.purchase.price for group in spec.plan.groups] == [Reserved(NAME)] * 2
    assert spec.plan.where.zones == ("europe-west4-a",)
    (note,) = spec.plan.origin.substitutions
    assert (note.field, note.requested) == (POOL.format(0), VALUE)
    assert [resource.name for resource in spec.resources] == [NAME]


def test_pool_without_gpus_needs_no_reservation_beside_one_that_has_it() -> None:
    spec = accepted(reserved(), CPU)
    assert [isinstance(group.purchase.price, Reserved) for group in spec.plan.groups] == [
        True,
        False,
    ]


def test_reservation_of_machines_without_gpus_is_accepted() -> None:
    spec = accepted(reserved(machine=CPU), reserved(machine=CPU))
    assert [group.purchase.price for group in spec.plan.groups] == [Reserved(NAME)] * 2


def test_pools_that_do_not_agree_are_one_problem() -> None:
    other = VALUE.replace("res-1", "res-2")
    (found,) = problems(reserved(), reserved(other))
    assert found == (
        f"{POOL.format(0)} names a reservation, and another pool names {other}; a job has one"
        " reservation"
    )
    (found,) = problems(reserved(), GPU)
    assert found.startswith(f"{POOL.format(0)} names a reservation, and workerPoolSpecs[1] names")


@pytest.mark.parametrize(
    ("extension", "words"),
    [
        ({"reservation": "other"}, "and trainmaster.reservation names"),
        ({"zones": ["europe-west4-b"]}, "and trainmaster.zones has europe-west4-b"),
        ({"region": "us-central1"}, "in europe-west4-a, which is not in the region us-central1"),
    ],
)
def test_reservation_that_disagrees_with_the_job_is_one_problem(
    extension: dict[str, Any], words: str
) -> None:
    (found,) = problems(reserved(), reserved(), **extension)
    assert words in found


@pytest.mark.parametrize(
    "changes",
    [
        {"values": []},
        {"values": ["res-1"]},
        {"values": [VALUE, VALUE]},
        {"key": "compute.googleapis.com/other"},
        {"reservationAffinityType": "NO_RESERVATION"},
        {"values": [f"{VALUE}/reservationBlocks/b"]},
    ],
)
def test_affinity_that_names_no_reservation_in_full_is_one_problem(
    changes: dict[str, Any],
) -> None:
    (found,) = problems(reserved(), reserved(**changes))
    assert found.startswith(f"{POOL.format(1)} must name one reservation")


def test_any_reservation_is_what_compute_engine_uses_by_itself() -> None:
    machine = {**CPU, "reservationAffinity": {"reservationAffinityType": "ANY_RESERVATION"}}
    assert accepted(machine).plan.origin.substitutions == ()
