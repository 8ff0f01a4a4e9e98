"""Who this VM is and what it is told to do: the metadata keys of docs/interfaces.md section 3, parsed."""

from __future__ import annotations

import json
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any


class Key(NamedTuple):
    """One incarnation of the replica. Later incarnations compare greater."""

    attempt: int
    incarnation: int


@dataclass(frozen=True)
class Directive:
    """What the stored state tells this VM to do."""

    key: Key
    action: str  # run, hold or stop
    slices: Sequence[str] = ()  # addresses of the job's TPU slices in this incarnation, where they have peers


@dataclass(frozen=True)
class Vm:
    name: str
    zone: str
    instance_id: str


@dataclass(frozen=True)
class Container:
    """``command`` replaces the image's ENTRYPOINT where there is one."""

    image: str
    command: Sequence[str]


@dataclass(frozen=True)
class Gang:
    """The metadata key ``trainmaster-vm-config``: what all VMs of one bulk insert have in common."""

    project: str
    job_id: str
    task_type: str
    vm_names: Sequence[str]
    vm_generation: int
    tf_config: Mapping[str, Any] | None
    cluster_spec: Mapping[str, Any] | None
    rank_base: int | None
    slice_base: int | None  # number of the role's first TPU slice, where several make one; else None
    environment: Mapping[str, str]
    packages: Sequence[str]
    package_uris: Sequence[str]
    python_module: str
    args: Sequence[str]
    job_dir: str | None
    container: Container | None
    variables: Mapping[str, str]
    expands: bool  # $(NAME) in arguments, command and variables
    secrets: Mapping[str, str]
    hosts: int
    checkpoint_signal: signal.Signals
    grace_s: float
    topics: Mapping[str, str]
    log: Mapping[str, str] | None  # where its output is copied to; None: nowhere
    fuse_s: float | None  # after which a TPU node deletes itself; None: what it runs on has a fuse of its own

    @staticmethod
    def parse(text: str) -> Gang:
        """Raises KeyError, TypeError or ValueError where the text is no gang."""
        stored = json.loads(text)
        container = stored.get("container")
        return Gang(
            project=stored["project"],
            job_id=stored["job_id"],
            task_type=stored["task_type"],
            vm_names=stored["vm_names"],
            vm_generation=stored["vm_generation"],
            tf_config=stored["tf_config"],
            cluster_spec=stored.get("cluster_spec"),
            rank_base=stored.get("rank_base"),
            slice_base=stored.get("slice_base"),
            environment=stored["environment"],
            packages=stored.get("packages") or (),
            package_uris=stored["package_uris"],
            python_module=stored["python_module"],
            args=stored["args"],
            job_dir=stored.get("job_dir"),
            container=Container(container["image"], container.get("command") or ()) if container else None,
            variables=stored.get("variables") or {},
            expands=bool(stored.get("expands")),
            secrets=stored.get("secrets") or {},
            hosts=int(stored.get("hosts") or 1),
            checkpoint_signal=signal.Signals[stored.get("checkpoint_signal") or "SIGTERM"],
            grace_s=float(stored["grace_s"]),
            topics=stored["topics"],
            log=stored.get("log"),
            fuse_s=stored.get("fuse_s"),
        )


@dataclass(frozen=True)
class Host:
    """One of the hosts of a Cloud TPU slice."""

    number: int
    addresses: Sequence[str]  # of all of them, in order of their numbers


@dataclass(frozen=True)
class ReplicaId:
    """Who this VM is, and of what it is a part. ``instance`` is the machine itself, where ``vm`` is a TPU node.

    ``project_number`` is empty on a TPU VM, whose own project is Google's.
    """

    vm: Vm
    gang: Gang
    instance: Vm
    host: Host | None = None
    project_number: str = ""

    @property
    def index(self) -> int:
        """The task index: raises ValueError where the gang does not know this VM."""
        return list(self.gang.vm_names).index(self.vm.name)

    @property
    def is_primary(self) -> bool:
        """Rank 0: for what one machine of a job is enough."""
        return self.gang.rank_base == 0 and self.index == 0 and (self.host is None or self.host.number == 0)


def parse_directive(text: str) -> Directive:
    """Raises KeyError, TypeError or ValueError where the text is no directive."""
    stored = json.loads(text)
    if stored["action"] not in ("run", "hold", "stop"):
        raise ValueError(f"unknown action {stored['action']!r}")
    key = Key(int(stored["attempt"]), int(stored["incarnation"]))
    return Directive(key, stored["action"], tuple(str(address) for address in stored.get("slices", ())))


def supersedes(new: Key, old: Key | None) -> bool:
    """Whether what is known about ``old`` no longer matters once ``new`` is desired."""
    return old is None or new > old
