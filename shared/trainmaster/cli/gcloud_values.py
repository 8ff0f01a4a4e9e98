"""Values of gcloud's options: from the text of an option to the value of a field of the job file.

Each function raises ValueError for text that it cannot read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_POOL_KEYS: Final = (
    "machine-type",
    "replica-count",
    "accelerator-type",
    "accelerator-count",
    "container-image-uri",
    "executor-image-uri",
    "python-module",
)
_POOL_IMAGE_KEYS: Final = {
    "local-package-path",
    "script",
    "requirements",
    "extra-packages",
    "extra-dirs",
    "output-image-uri",
}
"""With these, gcloud builds an image on the user's machine."""


def parse_accelerator(text: str) -> dict[str, str]:
    """Return an AcceleratorConfig, from `type=nvidia-tesla-t4,count=1`. Raises ValueError."""
    pairs = {"count": "1", **parse_pairs(text)}
    if set(pairs) != {"type", "count"}:
        raise ValueError("example: type=nvidia-tesla-t4,count=1")
    return {"type": parse_enum(pairs["type"]), "count": pairs["count"]}


def parse_enum(text: str) -> str:
    """Return the API's name of a value that gcloud writes in lower case with hyphens."""
    return text.upper().replace("-", "_")


def parse_list(text: str) -> list[str]:
    """Split at commas, or at another delimiter: `^:^a,b:c`. Source: `gcloud topic escaping`."""
    delimiter = ","
    if text.startswith("^") and "^" in text[1:]:
        delimiter, _, text = text[1:].partition("^")
    return [part for part in text.split(delimiter) if part]


def parse_time(text: str) -> str:
    """Return a time in minutes, hours or days in seconds, as job files have it: `15m` is `900s`.

    Any other text is returned as it is: the check of the job file refuses it.
    """
    seconds_per_unit = {"m": 60, "h": 3600, "d": 86400}.get(text[-1:])
    number = text[:-1]
    if seconds_per_unit is None or not number.isdecimal():
        return text
    return f"{int(number) * seconds_per_unit}s"


def parse_pairs(text: str) -> dict[str, str]:
    """Return the pairs of `KEY=VALUE,KEY=VALUE`. Raises ValueError."""
    pairs = [part.partition("=") for part in parse_list(text)]
    if not all(equals and name.strip() for name, equals, _ in pairs):
        raise ValueError("the format is KEY=VALUE,KEY=VALUE")
    return {name.strip(): value.strip() for name, _, value in pairs}


def parse_worker_pool(text: str) -> dict[str, object]:
    """Return a WorkerPoolSpec, from pairs such as `machine-type=n1-standard-4,replica-count=2`.

    Raises ValueError. Source: googlecloudsdk/command_lib/ai/custom_jobs/custom_jobs_util.py.
    """
    pairs = parse_pairs(text)
    unknown = pairs.keys() - {*_POOL_KEYS, *_POOL_IMAGE_KEYS}
    if unknown:
        raise ValueError(
            f"{', '.join(sorted(unknown))} is unknown; known are {', '.join(_POOL_KEYS)}"
        )
    builds = pairs.keys() & _POOL_IMAGE_KEYS
    if builds:
        raise ValueError(
            f"{', '.join(sorted(builds))} would build an image: build it, and give"
            " container-image-uri"
        )
    image = pairs.get("container-image-uri")
    executor = pairs.get("executor-image-uri")
    module = pairs.get("python-module")
    if image and (executor or module):
        raise ValueError("give either container-image-uri or executor-image-uri with python-module")
    machine: dict[str, object] = {"machineType": pairs.get("machine-type")}
    gpu = pairs.get("accelerator-type")
    if gpu:
        machine["acceleratorType"] = parse_enum(gpu)
        machine["acceleratorCount"] = _whole_number(pairs, "accelerator-count")
    pool: dict[str, object] = {
        "machineSpec": machine,
        "replicaCount": _whole_number(pairs, "replica-count"),
    }
    if image:
        pool["containerSpec"] = {"imageUri": image}
    else:
        pool["pythonPackageSpec"] = {"executorImageUri": executor, "pythonModule": module}
    return pool


def _whole_number(pairs: Mapping[str, str], key: str) -> int:
    text = pairs.get(key, "1")
    if not text.isdecimal():
        raise ValueError(f"{key} must be a whole number")
    return int(text)
