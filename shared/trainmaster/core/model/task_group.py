"""The replicas of one task type: their machine, and the program that they run.

    TaskGroup
     ├── machine_type, accelerator (GPUs)    or tpu: Tpu
     └── program: Program                    packages or container, arguments, variables

A task type is `chief` or `master`, `worker`, `ps` (parameter server) or `evaluator`. A replica is
one member of a job; it has one VM, or one TPU slice, which may consist of several hosts.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trainmaster.core.model.purchase import Purchase
from trainmaster.core.model.replica_id import TaskType


@dataclass(frozen=True, slots=True)
class Accelerator:
    """GPUs of a VM."""

    type: str
    """Compute Engine's name, such as `nvidia-tesla-t4`."""
    count: int
    """Number per VM."""


@dataclass(frozen=True, slots=True)
class Tpu:
    """A Cloud TPU slice. One slice is one replica, and each of its hosts runs the program."""

    type: str
    """Cloud TPU's accelerator type, such as `v5litepod-16`."""
    runtime: str
    """Cloud TPU's software version, such as `v2-alpha-tpuv5-lite`."""
    hosts: int = 1
    topology: str | None = None
    """Chip topology, such as `4x4`; None if the type implies it."""


@dataclass(frozen=True, slots=True)
class Container:
    """A container image that a program runs in."""

    image: str
    command: tuple[str, ...] = ()
    """Replaces the image's ENTRYPOINT, unless it is empty. Source: the API's ReplicaConfig."""


@dataclass(frozen=True, slots=True)
class Variable:
    """An environment variable of the program."""

    name: str
    value: str = ""
    """The value; empty for a secret, which is stored nowhere."""
    secret: str | None = None
    """Resource name of a Secret Manager version, which the VM reads."""


@dataclass(frozen=True, slots=True)
class Program:
    """The program of a replica: `python -m MODULE ARGS --job-dir JOB_DIR` after installing
    packages, or a container.
    """

    package_uris: tuple[str, ...]
    """Packages to install, in this order; empty for a container."""
    python_module: str
    """Module to run; empty for a container."""
    args: tuple[str, ...]
    job_dir: str | None
    """Value of `--job-dir`; None: no such argument."""
    container: Container | None = None
    environment: tuple[Variable, ...] = ()


@dataclass(frozen=True, slots=True)
class TaskGroup:
    """All replicas of one task type. They have the same machine and the same image."""

    task_type: TaskType
    count: int
    """Number of replicas."""
    machine_type: str
    """Compute Engine machine type; empty if `tpu` is set."""
    accelerator: Accelerator | None = None
    boot_disk_gib: int = 100
    boot_disk_type: str = "pd-ssd"
    tpu: Tpu | None = None
    program: Program | None = None
    """The program of this role; None: the program of the job."""
    purchase: Purchase = field(default_factory=Purchase)

    @property
    def hosts(self) -> int:
        """Number of machines per replica."""
        return self.tpu.hosts if self.tpu else 1
