"""Replace enum numbers by their names: Google's generated clients send enums as numbers over REST.

    {"acceleratorType": 5}  →  {"acceleratorType": "NVIDIA_TESLA_T4"}

Source: aiplatform/v1's accelerator_type.proto, custom_job.proto and study.proto. An unknown number
stays, and is then refused as any other wrong value. Responses have names, which those clients also
read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pydantic.alias_generators import to_camel

from trainmaster.core.machines.gpus import GPUS
from trainmaster.jobspec.catalog.machine_types import GPU_NAMES


def _numbers_of_gpus() -> dict[int, str]:
    numbers: dict[int, str] = {}
    for name, gpu in GPU_NAMES.items():
        number = GPUS[gpu].api_number
        if number is not None:
            numbers[number] = name
    return numbers


_ACCELERATORS: Final = {
    0: "ACCELERATOR_TYPE_UNSPECIFIED",
    6: "TPU_V2",
    7: "TPU_V3",
    10: "TPU_V4_POD",
    12: "TPU_V5_LITEPOD",
    17: "NVIDIA_GB200",  # no job can use it: its machines have Arm processors
    **_numbers_of_gpus(),
}
NAMES: Final[Mapping[str, Mapping[int, str]]] = {
    "acceleratorType": _ACCELERATORS,
    "strategy": {
        0: "STRATEGY_UNSPECIFIED",
        1: "ON_DEMAND",
        2: "LOW_COST",
        3: "STANDARD",
        4: "SPOT",
        6: "FLEX_START",
    },
    "reservationAffinityType": {
        0: "TYPE_UNSPECIFIED",
        1: "NO_RESERVATION",
        2: "ANY_RESERVATION",
        3: "SPECIFIC_RESERVATION",
    },
    "goal": {0: "GOAL_TYPE_UNSPECIFIED", 1: "MAXIMIZE", 2: "MINIMIZE"},
    "algorithm": {0: "ALGORITHM_UNSPECIFIED", 2: "GRID_SEARCH", 3: "RANDOM_SEARCH"},
    "scaleType": {
        0: "SCALE_TYPE_UNSPECIFIED",
        1: "UNIT_LINEAR_SCALE",
        2: "UNIT_LOG_SCALE",
        3: "UNIT_REVERSE_LOG_SCALE",
    },
    "measurementSelectionType": {
        0: "MEASUREMENT_SELECTION_TYPE_UNSPECIFIED",
        1: "LAST_MEASUREMENT",
        2: "BEST_MEASUREMENT",
    },
    "observationNoise": {0: "OBSERVATION_NOISE_UNSPECIFIED", 1: "LOW", 2: "HIGH"},
}
"""Field → number → name."""


def replace_numbers(value: object, field: str = "") -> object:
    """Return a document, or the value of a field, with names for numbers.

    Field names are in camelCase, and in snake_case in the inputs of training pipelines.
    """
    if isinstance(value, Mapping):
        return {name: replace_numbers(item, str(name)) for name, item in value.items()}
    if isinstance(value, list):
        return [replace_numbers(item) for item in value]
    if isinstance(value, int) and not isinstance(value, bool):
        return NAMES.get(to_camel(field), {}).get(value, value)
    return value
