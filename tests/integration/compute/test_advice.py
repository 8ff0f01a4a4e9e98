"""Advice on capacity, and the weather that it is about.

The weather of an emulated cloud is the capacity of each zone, which a seed and a climate, from mild
to famine, determine at each time.
"""

from __future__ import annotations

import json
import urllib.error
from statistics import mean
from typing import Any, NamedTuple

import pytest

from tests.integration.compute.emulator import OTHER_ZONE, PROJECT, ZONE, Emulator

PATH = f"/compute/v1/projects/{PROJECT}/regions/us-central1/advice/capacity"
GOOD: dict[str, Any] = {
    "size": 4,
    "distributionPolicy": {"targetShape": "ANY_SINGLE_ZONE", "zones": [{"zone": f"zones/{ZONE}"}]},
    "instanceFlexibilityPolicy": {
        "instanceSelections": {"replicas": {"machineTypes": ["a2-highgpu-1g"]}}
    },
    "instanceProperties": {"scheduling": {"provisioningModel": "SPOT"}},
}


class Advice(NamedTuple):
    """The one recommendation of an answer, for VMs of one machine type in one zone."""

    obtainability: float
    """Likelihood that the VMs can be created, from 0 to 1."""
    uptime: str
    """How long they would live, such as `60s`."""
    shard: dict[str, Any]
    """The VMs: their number, machine type, provisioning model and zone."""


def ask(emulator: Emulator, **changes: object) -> Advice:
    """Return the advice on `GOOD` with these changes."""
    (one,) = emulator.call(PATH, {**GOOD, **changes})["recommendations"]
    (shard,) = one["shards"]
    return Advice(one["scores"]["obtainability"], one["scores"]["estimatedUptime"], shard)


def refusal(emulator: Emulator, path: str, body: object) -> tuple[int, str]:
    """Return the HTTP status and the message of a call that is refused."""
    with pytest.raises(urllib.error.HTTPError) as error:
        emulator.call(path, body)  # type: ignore[arg-type]
    return error.value.code, json.load(error.value)["error"]["message"]


def test_best_zone_and_machine_type_are_recommended(emulator: Emulator) -> None:
    zones = [
        {"zone": f"https://compute.googleapis.com/compute/v1/projects/p/zones/{zone}"}
        for zone in (ZONE, OTHER_ZONE)
    ]
    policy = {"targetShape": "ANY", "zones": zones}
    emulator.faults(stockout_zones=[OTHER_ZONE])
    expected = {
        "instanceCount": 4,
        "machineType": "a2-highgpu-1g",
        "provisioningModel": "SPOT",
        "zone": ZONE,
    }
    assert ask(emulator, distributionPolicy=policy) == Advice(0.9, "3600s", expected)
    emulator.faults(stockout_zones=[ZONE])
    advice = ask(emulator)
    assert (advice.obtainability, advice.uptime) == (0.1, "60s")
    balanced = ask(emulator, distributionPolicy={"targetShape": "BALANCED"})
    assert balanced.shard["zone"] != ZONE
    emulator.faults(machine_limits={"a2-highgpu-1g": 3})
    assert ask(emulator).obtainability == 0.1, "one VM more than the zone has"
    assert ask(emulator, size=3).obtainability == 0.9


@pytest.mark.parametrize(
    ("changes", "status", "words"),
    [
        ({"size": 0}, 400, "resource.size"),
        ({"size": True}, 400, "resource.size"),
        ({"distributionPolicy": {}}, 400, "targetShape"),
        (
            {
                "distributionPolicy": {
                    "targetShape": "ANY",
                    "zones": [{"zone": "zones/us-central1-z"}],
                }
            },
            404,
            "us-central1-z",
        ),
        (
            {"distributionPolicy": {"targetShape": "ANY", "zones": [{"zone": "zones/us-east1-b"}]}},
            400,
            "not in the region",
        ),
        ({"instanceFlexibilityPolicy": {}}, 400, "instanceSelections"),
        (
            {"instanceFlexibilityPolicy": {"instanceSelections": {"a": {"machineTypes": ["x-1"]}}}},
            400,
            "'x-1'",
        ),
        (
            {
                "instanceFlexibilityPolicy": {
                    "instanceSelections": {
                        "a": {
                            "machineTypes": ["n1-standard-4"],
                            "guestAccelerators": [
                                {"acceleratorType": "nvidia-x", "acceleratorCount": 1}
                            ],
                        }
                    }
                }
            },
            400,
            "'nvidia-x'",
        ),
        (
            {"instanceProperties": {"scheduling": {"provisioningModel": "STANDARD"}}},
            400,
            "provisioningModel",
        ),
        ({"instanceProperties": {}}, 400, "provisioningModel"),
    ],
)
def test_wrong_question_is_refused(
    emulator: Emulator, changes: dict[str, Any], status: int, words: str
) -> None:
    code, message = refusal(emulator, PATH, {**GOOD, **changes})
    assert code == status
    assert words in message


def test_advice_on_an_unknown_region_is_not_found(emulator: Emulator) -> None:
    status, _ = refusal(emulator, PATH.replace("us-central1", "us-nowhere1"), GOOD)
    assert status == 404


def test_advice_is_forbidden_by_the_fault_of_that_call(emulator: Emulator) -> None:
    emulator.faults(refused_calls=["advise_capacity"])
    status, _ = refusal(emulator, PATH, GOOD)
    assert status == 403


@pytest.mark.parametrize(
    "weather",
    [
        7,
        {},
        {"seed": 1},
        {"seed": "1", "climate": "mild"},
        {"seed": 1, "climate": "wet"},
        {"seed": 1, "climate": "mild", "x": 1},
    ],
)
def test_wrong_weather_is_refused_with_its_form(emulator: Emulator, weather: object) -> None:
    status, message = refusal(emulator, "/emulator/v1/faults", {"weather": weather})
    assert status == 400
    assert "Invalid faults: weather" in message


def test_weather_limits_capacity_until_it_is_cleared(emulator: Emulator) -> None:
    def chance(seed: int) -> float:
        emulator.faults(weather={"seed": seed, "climate": "famine"})
        assert emulator.call("/emulator/v1/faults")["weather"] == {
            "seed": seed,
            "climate": "famine",
        }
        return ask(emulator, size=60).obtainability

    chances = [chance(seed) for seed in range(12)]
    assert chances == [chance(seed) for seed in range(12)]
    assert 0.1 < mean(chances) < 0.5, "some zones have capacity in a famine, and most have none"
    emulator.faults()
    assert ask(emulator).obtainability == 0.9
