"""Read a configuration of dstack.

Fields are removed as they are read. What is left at the end has no counterpart here, and becomes a
note to the user.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, Final

from trainmaster.jobspec.foreign.commands import join_lines, take_installation
from trainmaster.jobspec.foreign.task import (
    SECRET,
    Node,
    Notes,
    Task,
    disk_of,
    least,
    mapping_of,
    nodes_of,
    text_of,
    texts_of,
)
from trainmaster.jobspec.machines.selection import accelerator_of

_ADVICE: Final = {
    "python": "the runtime has its Python; runtimeVersion chooses another one",
    "ports": "`trainmaster ssh` forwards a port",
    "volumes": "keep data in Cloud Storage, which programs read as /gcs/BUCKET",
    "files": "copy them into the folder that is submitted",
    "repos": "clone the repository, and name the clone as --folder",
    "retry": "lost VMs are replaced free of charge; exitPolicy says which exits restart",
    "max_price": "set trainmaster.maxCost, for the whole job",
    "registry_auth": "let the workers' service account read the registry",
    "schedule": "`trainmaster schedule create`",
    "fleets": "each job boots its own VMs",
    "priority": "set scheduling.priority",
}
"""Field of a task without a counterpart → what to do instead."""
_RESOURCES_ADVICE: Final = {"shm_size": "a container may use half of the memory"}
"""Field of `resources` without a counterpart → what to do instead."""
_SECONDS_PER_UNIT: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_VENDORS: Final = ("nvidia", "google", "tpu")
"""Words of a GPU that do not name its type."""


def read_configuration(document: Mapping[str, Any], notes: Notes) -> Task:
    """Return what the configuration asks for, and add to `notes` what the job file cannot say."""
    fields = dict(document)
    kind = fields.pop("type")
    if kind != "task":
        notes.add("type", f"is {kind}: only training is run here")
    image = fields.pop("image", None)
    env = _take_env(fields, notes)
    lines = [line for item in fields.pop("commands") for line in join_lines(text_of(item))]
    lines = take_installation(lines, "commands", notes)
    node = _node(fields, notes)
    spot_policy = fields.pop("spot_policy", None)
    task = Task(
        name=text_of(fields.pop("name", None)) or "task",
        folder=text_of(fields.pop("working_dir", None)) or ".",
        nodes=nodes_of(fields.pop("nodes", None), "nodes", notes),
        alternatives=_spot_alternatives(node, spot_policy),
        is_ordered=False,  # the cheapest alternative comes first
        commands=tuple(lines),
        image=image if isinstance(image, str) else None,
        env=env,
        duration_s=_seconds(fields.pop("max_duration", None), notes),
    )
    notes.add_rest(fields, _ADVICE)
    return task


def _spot_alternatives(node: Node, spot_policy: object) -> tuple[Node, ...]:
    """Return the machine as a Spot VM (`spot`), as an ordinary one, or both (`auto`)."""
    if spot_policy == "auto":
        return replace(node, spot="all"), replace(node, spot="none")
    return (replace(node, spot="all" if spot_policy == "spot" else None),)


def _take_env(fields: dict[str, Any], notes: Notes) -> dict[str, str]:
    """Return the variables with a value. dstack takes the others from the user's shell."""
    given = fields.pop("env", None)
    listed = (item.partition("=") for item in texts_of(given))
    pairs = {name: value for name, _, value in listed}
    pairs |= {name: text_of(value) for name, value in mapping_of(given).items()}
    for name, value in pairs.items():
        if not value:
            notes.add(f"env.{name}", f"has no value; set trainmaster.env, or {SECRET}")
    return {name: value for name, value in pairs.items() if value}


def _node(fields: dict[str, Any], notes: Notes) -> Node:
    """Return the machine that each node needs, of the lower bounds of its ranges."""
    resources = mapping_of(fields.pop("resources", None))
    backends = texts_of(fields.pop("backends", None))
    if backends and "gcp" not in backends:
        notes.add("backends", "names no Google Cloud")
    disk = resources.pop("disk", None)  # a size, or a mapping with one
    gpu = _read_gpu(resources.pop("gpu", None))
    accelerator = None
    if gpu and gpu.name:
        accelerator = accelerator_of(gpu.name, gpu.count, gpu.memory_gib)
    if gpu and accelerator is None:
        notes.add(
            "resources.gpu", "name a type of Compute Engine: `trainmaster machines` lists all"
        )
    node = Node(
        machine_type=next(iter(texts_of(fields.pop("instance_types", None))), None),
        accelerator=accelerator,
        vcpus=least(resources.pop("cpu", None)) or Decimal(0),
        memory_gib=least(resources.pop("memory", None)) or Decimal(0),
        disk_gib=disk_of(mapping_of(disk).get("size", disk)),
        regions=texts_of(fields.pop("regions", None)),
        zones=texts_of(fields.pop("availability_zones", None)),
    )
    notes.add_rest(resources, _RESOURCES_ADVICE, inside="resources")
    return node


@dataclass(frozen=True, slots=True)
class _Gpu:
    """The GPUs of one machine."""

    name: str
    """Type, such as A100; empty: any."""
    count: int
    memory_gib: Decimal | None
    """Memory of one GPU, at least; None: any."""


def _read_gpu(value: object) -> _Gpu | None:
    """Return the GPU of `A100:80GB:2`, `24GB`, `nvidia:L4` or a mapping; of a list, the first."""
    if not value:
        return None
    if isinstance(value, Mapping):
        first = next(iter(texts_of(value.get("name"))), "")
        return _Gpu(first, int(least(value.get("count", 1)) or 1), least(value.get("memory")))
    name = ""
    count = 1
    memory = None
    for word in str(value).split(":"):
        if re.fullmatch(r"\d+(?:\.\.\d*)?", word):
            count = int(least(word) or 1)
        elif re.search(r"\d\s*GB", word, re.IGNORECASE):
            memory = least(word)
        elif word.lower() not in _VENDORS:
            name = word.partition(",")[0]
    return _Gpu(name, count, memory)


def _seconds(value: object, notes: Notes) -> int | None:
    """Return the seconds of `6h`, `90m` or a number; None: no limit."""
    if value in (None, "off", False):
        return None
    match = re.fullmatch(r"(\d+)([smhdw]?)", str(value))
    if match is None:
        notes.add("max_duration", "set scheduling.maxRunningTime")
        return None
    number, unit = match.groups()
    return int(number) * _SECONDS_PER_UNIT[unit or "s"]
