"""Advice of Compute Engine about capacity: the chance to get Spot VMs of a kind in a zone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import requests

from tests.contract.compute_fleet.answers import a_response
from tests.contract.fleets import NOWHERE
from tests.integration.compute.emulator import PROJECT, Emulator
from tests.support.jobs import START
from trainmaster.core.model.purchase import Purchase, Spot
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Accelerator, TaskGroup
from trainmaster.core.timeouts import ADVICE_KEPT, ADVICE_REFUSED
from trainmaster.gcp.compute_fleet.advice import CapacityAdvisor
from trainmaster.ports import Advisor

A, B, FAR = "us-central1-a", "us-central1-b", "us-east1-b"
GPU = TaskGroup(
    TaskType.WORKER,
    count=4,
    machine_type="n1-standard-8",
    accelerator=Accelerator("nvidia-tesla-t4", 2),
    purchase=Purchase(Spot()),
)
BUILT_IN = TaskGroup(
    TaskType.CHIEF,
    count=1,
    machine_type="a2-highgpu-1g",
    accelerator=Accelerator("nvidia-tesla-a100", 1),
    purchase=Purchase(Spot()),
)
KIND = "Spot n1-standard-8 with 2 x nvidia-tesla-t4"
MOMENT = timedelta(microseconds=1)
ROOM, NO_ROOM = 0.9, 0.1
"""The emulator's chances for a zone with capacity, and for one without."""


@pytest.fixture
def advisor(emulator: Emulator) -> Advisor:
    return CapacityAdvisor(PROJECT, endpoint=emulator.endpoint)


def chances(
    advisor: Advisor, *requests_: tuple[str, TaskGroup], after: timedelta = timedelta()
) -> list[float]:
    """Return the chance of each kind of VM in each zone; nothing where there is no advice."""
    return list(advisor.advise(requests_, START + after).values())


def test_each_zone_and_role_has_advice_of_its_own(emulator: Emulator, advisor: Advisor) -> None:
    emulator.faults(stockout_zones=[A])
    found = advisor.advise([(A, GPU), (B, GPU), (FAR, BUILT_IN), (B, GPU)], START)
    other = "Spot a2-highgpu-1g with 1 x nvidia-tesla-a100"
    assert found == {(A, KIND): NO_ROOM, (B, KIND): ROOM, (FAR, other): ROOM}
    assert advisor.advise([], START) == {}


def test_of_two_roles_of_one_kind_the_larger_decides(emulator: Emulator, advisor: Advisor) -> None:
    emulator.faults(machine_limits={"n1-standard-8": 4})
    one = replace(GPU, task_type=TaskType.CHIEF, count=1)
    many = replace(GPU, count=5)
    assert chances(advisor, (A, one)) == [ROOM]
    for requested in ([(A, many), (A, one)], [(A, one), (A, many)]):
        assert chances(advisor, *requested) == [NO_ROOM]


def test_answer_is_kept_for_ten_minutes_and_for_this_number_of_vms(
    emulator: Emulator, advisor: Advisor
) -> None:
    assert chances(advisor, (A, GPU)) == [ROOM]
    emulator.faults(stockout_zones=[A])
    assert chances(advisor, (A, GPU), after=ADVICE_KEPT - MOMENT) == [ROOM]
    assert chances(advisor, (A, replace(GPU, count=5)), after=MOMENT) == [NO_ROOM]
    assert chances(advisor, (A, GPU), after=ADVICE_KEPT) == [NO_ROOM]


@pytest.mark.parametrize(
    ("faults", "group", "zone", "kept"),
    [
        pytest.param(
            {"refused_calls": ["advise_capacity"]}, GPU, A, ADVICE_REFUSED, id="no permission"
        ),
        pytest.param({"disabled_apis": ["compute"]}, GPU, A, ADVICE_REFUSED, id="API disabled"),
        pytest.param(
            {}, replace(GPU, machine_type="z9-unknown-1"), A, ADVICE_REFUSED, id="unknown machine"
        ),
        pytest.param({}, GPU, "us-nowhere1-a", ADVICE_REFUSED, id="unknown region"),
        pytest.param({"rate_limited": 1}, GPU, A, ADVICE_KEPT, id="rate limit"),
    ],
)
def test_refusal_means_no_advice_and_is_not_asked_again_for_a_time(
    faults: dict[str, Any],
    group: TaskGroup,
    zone: str,
    kept: timedelta,
    emulator: Emulator,
    advisor: Advisor,
) -> None:
    emulator.faults(**faults)
    assert chances(advisor, (zone, group)) == []
    emulator.faults()  # none any more
    assert chances(advisor, (zone, group), after=kept - MOMENT) == []
    is_valid_request = zone == A and group is GPU
    assert chances(advisor, (zone, group), after=kept) == ([ROOM] if is_valid_request else [])


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        pytest.param([{"obtainability": 0.8, "estimatedUptime": "600s"}], [0.8], id="long uptime"),
        pytest.param(
            [{"obtainability": 0.8, "estimatedUptime": "60s"}],
            [0.1],
            id="uptime too short to be useful",
        ),
        pytest.param([{"obtainability": 1.5}], [1.0], id="above 1"),
        pytest.param([{"obtainability": 0.2}, {"obtainability": 0.4}], [0.4], id="two"),
        pytest.param([{"obtainability": 0.0}], [0.0], id="none"),
        pytest.param([{}], [], id="no score"),
        pytest.param([], [], id="no recommendation"),
    ],
)
def test_scores_of_google_become_a_chance(
    scores: list[dict[str, Any]], expected: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"kind": "answer", "recommendations": [{"scores": score} for score in scores]}
    monkeypatch.setattr(
        requests.Session, "request", lambda *_, **__: a_response(200, reason="", body=answer)
    )
    assert chances(CapacityAdvisor("p", endpoint=NOWHERE), (A, GPU)) == expected


def test_without_a_connection_there_is_no_advice() -> None:
    assert chances(CapacityAdvisor("p", endpoint=NOWHERE), (A, GPU)) == []
