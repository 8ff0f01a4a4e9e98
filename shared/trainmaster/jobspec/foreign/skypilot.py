"""Read a task of SkyPilot.

Each `_take_…` removes the fields that it reads. What is left at the end has no counterpart here,
and becomes a note to the user.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any, Final

from trainmaster.jobspec.foreign.commands import head_of, join_lines, take_installation
from trainmaster.jobspec.foreign.task import (
    SECRET,
    Node,
    Notes,
    Task,
    bucket_note,
    disk_of,
    least,
    mapping_of,
    nodes_of,
    text_of,
)
from trainmaster.jobspec.machines.selection import accelerator_of

_ADVICE: Final = {
    "service": "only training is run here; Vertex AI, SkyPilot and dstack serve models",
    "volumes": "keep data in Cloud Storage, which programs read as /gcs/BUCKET",
}
"""Field of a task without a counterpart → what to do instead."""
_RESOURCES_ADVICE: Final = {
    "ports": "`trainmaster ssh` forwards a port",
    "autostop": "each VM is deleted when its job ends",
    "job_recovery": "lost VMs are replaced free of charge; exitPolicy says which exits restart",
    "max_hourly_cost": "set trainmaster.maxCost, for the whole job",
    "disk_tier": "set diskConfig.bootDiskType",
}
"""Field of `resources` without a counterpart → what to do instead."""
_OTHER_CLOUD: Final = "is not Google Cloud"


def read_task(document: Mapping[str, Any], notes: Notes) -> Task:
    """Return what the task asks for, and add to `notes` what the job file cannot say."""
    fields = dict(document)
    resources = mapping_of(fields.pop("resources", None))
    image = _take_image(resources, notes)
    folder = _take_folder(fields, image, notes)
    reads_buckets = _take_mounts(fields, notes)
    env = _take_env(fields, notes)
    nodes = nodes_of(fields.pop("num_nodes", None), "num_nodes", notes)
    labels = {
        name: text_of(value) for name, value in mapping_of(resources.pop("labels", None)).items()
    }
    setup = take_installation(join_lines(text_of(fields.pop("setup", None))), "setup", notes)
    for line in setup:
        notes.add(
            f"setup: {head_of(line)}",
            "put it before the program in a script: -- bash run.sh. Each start runs it",
        )
    commands = take_installation(join_lines(fields.pop("run")), "run", notes)
    name = text_of(fields.pop("name", None)) or "task"
    alternatives, is_ordered = _take_alternatives(resources, notes)
    notes.add_rest(fields, _ADVICE)
    return Task(
        name=name,
        folder=folder,
        nodes=nodes,
        alternatives=alternatives,
        is_ordered=is_ordered,
        commands=tuple(commands),
        image=image,
        env=env,
        labels=labels,
        reads_buckets=reads_buckets,
    )


def _take_image(resources: dict[str, Any], notes: Notes) -> str | None:
    image = resources.pop("image_id", None)
    if isinstance(image, str) and image.startswith("docker:"):
        return image.removeprefix("docker:")
    if image:
        notes.add("resources.image_id", "set trainmaster.image to an image of Compute Engine")
    return None


def _take_folder(fields: dict[str, Any], image: str | None, notes: Notes) -> str:
    folder = fields.pop("workdir", None)
    if folder is not None and not isinstance(folder, str):
        notes.add("workdir", "clone the repository, and name the clone as --folder")
    elif folder is not None and image:
        notes.add("workdir", "a container has its own files: copy the folder into the image")
    return folder if isinstance(folder, str) else "."


def _take_mounts(fields: dict[str, Any], notes: Notes) -> bool:
    """Name each mount. Return whether one is a bucket of Cloud Storage."""
    reads_buckets = False
    for path, mount in mapping_of(fields.pop("file_mounts", None)).items():
        source = mount
        if isinstance(mount, Mapping):
            source = mount.get("source") or f"{mount.get('store', '')}://{mount.get('name', '')}"
        source = str(source).replace("gcs://", "gs://", 1)
        in_bucket = bucket_note(source)
        reads_buckets = reads_buckets or in_bucket is not None
        away = "copy the data to Cloud Storage, which programs read as /gcs/BUCKET"
        local = "copy the file into the folder that is submitted"
        notes.add(f"file_mounts.{path}", in_bucket or (away if "://" in source else local))
    return reads_buckets


def _take_env(fields: dict[str, Any], notes: Notes) -> dict[str, str]:
    variables = mapping_of(fields.pop("envs", None))
    for name in mapping_of(fields.pop("secrets", None)):
        notes.add(f"secrets.{name}", SECRET)
    for name, value in variables.items():
        if value in (None, ""):
            notes.add(f"envs.{name}", f"has no value; set trainmaster.env, or {SECRET}")
    return {name: str(value) for name, value in variables.items() if value not in (None, "")}


def _take_alternatives(resources: dict[str, Any], notes: Notes) -> tuple[tuple[Node, ...], bool]:
    """Return the machines that would do, at least one, and whether their order counts."""
    lists = {name: resources.pop(name, None) for name in ("ordered", "any_of")}
    accelerators = resources.get("accelerators")
    base = list(_nodes(resources, "resources", Node(), notes)) or [Node()]
    for name, items in lists.items():
        if isinstance(items, list) and items:
            nodes = [
                node
                for index, item in enumerate(items)
                for node in _nodes(mapping_of(item), f"resources.{name}[{index}]", base[0], notes)
            ]
            return tuple(nodes) or (base[0],), name == "ordered"
    return tuple(base), isinstance(accelerators, list)


def _nodes(resources: Mapping[str, Any], path: str, base: Node, notes: Notes) -> Iterator[Node]:
    """Yield a node for each accelerator that would do; none in another cloud.

    `base`: what a node has that sets nothing else.
    """
    fields = dict(resources)
    infra = text_of(fields.pop("infra", None))
    cloud, _, place = infra.partition("/")
    region, _, zone = place.partition("/")
    named = fields.pop("cloud", None)
    for name, value in (("infra", cloud), ("cloud", named)):
        if value and str(value).lower() not in ("gcp", "*"):
            notes.add(f"{path}.{name}", _OTHER_CLOUD)
            return
    region = (text_of(fields.pop("region", None)) or region).replace("*", "")
    zone = (text_of(fields.pop("zone", None)) or zone).replace("*", "")
    cpus = least(fields.pop("cpus", None))
    memory = text_of(fields.pop("memory", None))
    memory_gib = least(memory)
    is_per_cpu = memory.endswith("x")  # `4x`: GiB for each CPU
    if memory_gib is not None and is_per_cpu:
        memory_gib *= cpus or Decimal(0)
    use_spot = fields.pop("use_spot", None)
    spot = base.spot
    if use_spot is not None:
        spot = "all" if use_spot else "none"
    disk_gib = disk_of(fields.pop("disk_size", None))
    node = replace(
        base,
        machine_type=text_of(fields.pop("instance_type", None)) or base.machine_type,
        vcpus=cpus or base.vcpus,
        memory_gib=memory_gib or base.memory_gib,
        disk_gib=disk_gib or base.disk_gib,
        regions=(region,) if region else base.regions,
        zones=(zone,) if zone else base.zones,
        spot=spot,
    )
    accelerators = fields.pop("accelerators", None)
    notes.add_rest(fields, _RESOURCES_ADVICE, inside=path)
    if not accelerators:
        yield node
        return
    for name, count in _accelerators(accelerators):
        accelerator = accelerator_of(name, count)
        if accelerator is None:
            notes.add(
                f"{path}.accelerators", f"Compute Engine has no {name}: `trainmaster machines`"
            )
        else:
            yield replace(node, accelerator=accelerator)


def _accelerators(value: object) -> Iterator[tuple[str, int]]:
    """Yield name and count of `A100:8`, `{A100: 8}`, or a list or set of them."""
    match value:
        case str():
            name, _, count = value.partition(":")
            yield name, int(least(count) or 1)
        case Mapping():
            for written, count in value.items():
                name, _, count_in_name = str(written).partition(":")
                yield name, int(least(count_in_name or count) or 1)
        case list():
            for item in value:
                yield from _accelerators(item)
