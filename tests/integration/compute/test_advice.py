"""Advice on capacity, and the weather that it is about."""

from __future__ import annotations

import json
import urllib.error
from statistics import mean
from typing import Any

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


def ask(emulator: Emulator, **changes: object) -> tuple[float, str, dict[str, Any]]:
    (one,) = emulator.call(PATH, {**GOOD, **changes})["recommendations"]
    (shard,) = one["shards"]
    return one["scores"]["obtainability"], one["scores"]["estimatedUptime"], shard


def refusal(emulator: Emulator, path: str, body: object) -> tuple[int, str]:
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
    assert ask(emulator, distributionPolicy=policy) == (0.9, "3600s", expected)
    emulator.faults(stockout_zones=[ZONE])
    assert ask(emulator)[:2] == (0.1, "60s")
    assert ask(emulator, distributionPolicy={"targetShape": "BALANCED"})[2]["zone"] != ZONE
    emulator.faults(machine_limits={"a2-highgpu-1g": 3})
    assert ask(emulator)[0] == 0.1
    assert ask(emulator, size=3)[0] == 0.9


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
    found = refusal(emulator, PATH, {**GOOD, **changes})
    assert found[0] == status
    assert words in found[1]


def test_unknown_region_and_refused_call(emulator: Emulator) -> None:
    assert refusal(emulator, PATH.replace("us-central1", "us-nowhere1"), GOOD)[0] == 404
    emulator.faults(refused_calls=["advise_capacity"])
    assert refusal(emulator, PATH, GOOD)[0] == 403


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
        return ask(emulator, size=60)[0]

    chances = [chance(seed) for seed in range(12)]
    assert chances == [chance(seed) for seed in range(12)]
    assert 0.1 < mean(chances) < 0.5, "famine"
    emulator.faults()
    assert ask(emulator)[0] == 0.9
