"""The requests of another tool's task in Trainmaster's terms, and notes about all others.

`skypilot` and `dstack` make a `Task` of a file, and `answer` a job file of that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, NamedTuple

from trainmaster.jobspec.machines.selection import (
    Accelerator,
    Demand,
    select_machine,
)

NO_COUNTERPART: Final = "has no counterpart here"
SECRET: Final = "name a version of Secret Manager in trainmaster.secrets"  # noqa: S105
BUCKET: Final = re.compile(r"gs://([^/]+)(/.*)?")
NODES_MAX: Final = 1_000
"""Replicas that a job may have."""
TPU_MACHINE: Final = "cloud_tpu"
"""Machine type whose TPU the accelerator names."""
DISK_GIB: Final = range(10, 65537)
"""Sizes that a boot disk may have."""
_GIB_PER_TIB: Final = 1024
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?")


class Note(NamedTuple):
    """A field that the job file does not contain, or not as it was."""

    field: str
    text: str
    """What to do instead. It quotes no value of a variable: that may be a secret."""


@dataclass
class Notes:
    """Collects what a task asks for that the job file cannot say."""

    items: list[Note] = field(default_factory=list)

    def add(self, name: str, text: str) -> None:
        self.items.append(Note(name, text))

    def add_rest(
        self, values: Mapping[str, object], advice: Mapping[str, str], *, inside: str = ""
    ) -> None:
        """Name the fields that were not taken, unless they are empty.

        `advice`: field → what to do instead. `inside`: path of the fields, empty at the top.
        """
        for name, value in values.items():
            if value not in (None, {}, [], ""):
                path = f"{inside}.{name}" if inside else name
                self.add(path, advice.get(name, NO_COUNTERPART))


@dataclass(frozen=True, slots=True)
class Node:
    """One machine that a task asks for."""

    machine_type: str | None = None
    """None: the smallest one with the resources below."""
    accelerator: Accelerator | None = None
    vcpus: Decimal = Decimal(0)
    memory_gib: Decimal = Decimal(0)
    disk_gib: int | None = None
    regions: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    spot: str | None = None
    """`all` or `none`; None: the task does not set it."""

    @property
    def gpus(self) -> int:
        accelerator = self.accelerator
        return accelerator.count if accelerator and not accelerator.is_tpu else 0

    def machine(self) -> tuple[str, dict[str, object]] | None:
        """Return the machine type, and the accelerator to attach to it.

        None: no known machine has the resources.
        """
        accelerator = self.accelerator
        attached: dict[str, object] = {}
        if accelerator:
            attached = {"type": accelerator.type, "count": accelerator.count}
        if accelerator and accelerator.is_tpu:
            return TPU_MACHINE, attached
        gpu_type = accelerator.type if accelerator else None
        demand = Demand(self.vcpus, self.memory_gib, gpu_type, self.gpus)
        machine = self.machine_type or select_machine(demand)
        if machine is None:
            return None
        return machine, attached if machine.startswith("n1-") else {}


@dataclass(frozen=True, slots=True)
class Task:
    """A task of another tool."""

    name: str
    folder: str
    """Folder with the program, which is submitted."""
    nodes: int
    """Number of machines."""
    alternatives: tuple[Node, ...]
    """The machines that would do, at least one."""
    is_ordered: bool
    """Whether the alternatives are tried in their order, and not the cheapest first."""
    commands: tuple[str, ...]
    """What each node runs."""
    image: str | None = None
    env: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    reads_buckets: bool = False
    """Whether it mounts a bucket of Cloud Storage."""
    duration_s: int | None = None
    """Time limit; None: there is none."""


def least(value: object) -> Decimal | None:
    """Return the lower bound of `4`, `4+`, `16GB..`, `2..8` or `x86:4`; None: it has none.

    A number of TB is returned in GB.
    """
    _, _, amount = str(value).rpartition(":")
    lower, _, _ = amount.partition("..")
    match = _NUMBER.search(lower)
    if match is None or isinstance(value, bool):
        return None
    number = Decimal(match[0])
    is_in_tib = re.search(r"\d\s*TB", str(value), re.IGNORECASE) is not None
    return number * _GIB_PER_TIB if is_in_tib else number


def text_of(value: object) -> str:
    """Return a text or number as text; empty for anything else."""
    is_text = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value).strip() if is_text else ""


def texts_of(value: object) -> tuple[str, ...]:
    """Return the texts of a list, or a single one."""
    items = value if isinstance(value, list) else [value]
    return tuple(text for text in map(text_of, items) if text)


def mapping_of(value: object) -> dict[str, Any]:
    """Return a copy of a mapping; empty for anything else."""
    return {str(name): item for name, item in value.items()} if isinstance(value, Mapping) else {}


def disk_of(value: object) -> int | None:
    """Return the size of a disk in GiB; None: it is not given, or no disk has it."""
    size = int(least(value) or 0)
    return size if size in DISK_GIB else None


def nodes_of(value: object, name: str, notes: Notes) -> int:
    """Return the number of nodes of the field `name`; 1 if it is absent, or wrong, with a note."""
    if value is None:
        return 1
    if isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= NODES_MAX:
        return value
    notes.add(name, f"must be a whole number from 1 to {NODES_MAX}; set workerCount")
    return 1


def bucket_note(uri: str) -> str | None:
    """Return how a program reads what is in a bucket; None: it is no bucket of Cloud Storage."""
    match = BUCKET.fullmatch(uri)
    return f"read it as /gcs/{match[1]}{(match[2] or '').rstrip('/')}" if match else None
