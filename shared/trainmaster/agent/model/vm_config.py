"""The metadata that the control plane gives this VM (docs/interfaces.md section 3).

The *config* does not change: which replica of which job this VM is, and how to run its program. The
*directive* is the current order: hold, run, save or stop one *incarnation*, which is one execution
of the program. Replicas that train together, the *members*, start together: each common start is a
*round*. One after the other, several jobs may use a VM; the *tenure* is the number of the job.
"""

from __future__ import annotations

import dataclasses
import json
import signal
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

ACTIONS = ("hold", "run", "save", "stop")
"""Actions of directives, in the order in which they follow each other in one incarnation."""


class IncarnationKey(NamedTuple):
    """One incarnation of the replica. Later incarnations compare greater."""

    attempt: int
    incarnation: int


@dataclass(frozen=True)
class ReceivedDirective:
    """The metadata key ``trainmaster-directive``: what this VM should be doing."""

    key: IncarnationKey
    action: str
    """One of `ACTIONS`."""
    slices: Sequence[str] = ()
    """Addresses of the job's TPU slices in this incarnation; empty unless the job has several
    slices.
    """
    pause_s: float = 0.0
    """Time between the directive and the start of the incarnation."""
    save_number: int = 0
    """With `save`: number of the request in this round."""
    until: float = 0.0
    """With `save`: when the save must have ended, in seconds since 1970."""
    without: Sequence[int] = ()
    """Ranks of the members without which the round runs."""
    paid_until: float = 0.0
    """When this VM ends itself, unless a later directive extends it, in seconds since 1970.

    0: never.
    """
    tenure: int = 1
    """Number, from 1, of the job among those that have used this VM."""
    asks_peers: bool = False
    """With `save`: no VM is about to stop. This agent asks all members to save, because more
    members can join, or because the job ends.
    """

    @property
    def order(self) -> tuple[int, int, int, int]:
        """Position among the directives of this VM, which only move forward. The control plane
        compares them in the same way (`trainmaster.core.model.vm`).
        """
        attempt, incarnation = self.key
        return attempt, incarnation, ACTIONS.index(self.action), self.save_number

    @property
    def runs(self) -> bool:
        """Whether the incarnation runs."""
        return self.action in ("run", "save")


@dataclass(frozen=True)
class VmRef:
    """A VM or TPU node, as messages name it."""

    name: str
    zone: str
    instance_id: str


@dataclass(frozen=True)
class ContainerCommand:
    """A container image and the command to run in it."""

    image: str
    command: Sequence[str]
    """Replaces the image's ENTRYPOINT, unless it is empty."""

    @staticmethod
    def parse(stored: Mapping[str, Any] | None) -> ContainerCommand | None:
        """Return the entry of the metadata; None without one. Raises KeyError."""
        if not stored:
            return None
        return ContainerCommand(stored["image"], stored.get("command") or ())


@dataclass(frozen=True)
class ChannelConfig:
    """The peer channel of a synchronous job."""

    key: bytes = field(repr=False)
    """Secret of the job's agents."""
    first: int
    """Number of the role's first replica among the members."""
    members: Sequence[str]
    """`HOST:PORT`, of UDP, of all members in the order of their numbers."""

    @staticmethod
    def parse(stored: Mapping[str, Any] | None) -> ChannelConfig | None:
        """Return the entry of the metadata; None without one.

        Raises KeyError, TypeError or ValueError if it is malformed.
        """
        if not stored:
            return None
        members: list[str] = []
        for role in stored["members"]:
            members.extend(expand(role))
        return ChannelConfig(bytes.fromhex(stored["key"]), int(stored["first"]), members)


@dataclass(frozen=True)
class VmConfig:
    """The metadata key ``trainmaster-vm-config``.

    All VMs of one bulk insert have the same value.
    """

    project: str
    job_id: str
    task_type: str
    """Role of the VMs: `chief`, `worker` and others."""
    vm_names: Sequence[str]
    """The role's VMs; the position of a name is the task index of that VM."""
    vm_generation: int
    environment: Mapping[str, str]
    """Variables that the platform sets."""
    package_uris: Sequence[str]
    """The job's own packages, in Cloud Storage: `gs://BUCKET/NAME#GENERATION`."""
    python_module: str
    """Module to run; empty for a container."""
    args: Sequence[str]
    """Arguments of the program."""
    grace_s: float
    """Time between SIGTERM and SIGKILL."""
    topics: Mapping[str, str]
    """Pub/Sub topics, by event type."""
    tf_config: Mapping[str, Any] | None = None
    """TF_CONFIG without the task index; None if the program gets none."""
    cluster_spec: Mapping[str, Any] | None = None
    """CLUSTER_SPEC without the task index; None if the program gets none."""
    rank_base: int | None = None
    """RANK of the role's first process; None if the role has no ranks."""
    slice_base: int | None = None
    """Number of the role's first TPU slice; None unless the job has several slices."""
    packages: Sequence[str] = ()
    """pip requirements of the runtime version."""
    job_dir: str | None = None
    """Value of `--job-dir`; None: no such argument."""
    container: ContainerCommand | None = None
    """None if the program is a Python module."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """The job's own variables."""
    expands: bool = False
    """Whether $(NAME) in arguments, command and variables is replaced."""
    secrets: Mapping[str, str] = field(default_factory=dict)
    """Names of secrets in Secret Manager, by variable."""
    gcs: bool = False
    """Whether the program finds all buckets below /gcs."""
    hosts: int = 1
    """Hosts of each TPU slice; 1 for a VM."""
    checkpoint_signal: signal.Signals = signal.SIGTERM
    """The program gets this signal when its VM is about to stop."""
    stall_timeout_s: float | None = None
    """Time without output after which the program is ended; None: no limit."""
    log: Mapping[str, str] | None = None
    """Where the output is copied in Cloud Logging; None if it is not copied."""
    fuse_s: float | None = None
    """Longest time for which a TPU node exists before it deletes itself; None for VMs, which
    Compute Engine deletes.
    """
    independent: bool = False
    """Whether the job has `independentReplicas`: no replica waits for another one."""
    tracking_run: str = "auto"
    """As in the job file: `auto`, `one` or `each`."""
    preflight: str = "off"
    """As in the job file: `on`, `report` or `off`."""
    gpus: int = 0
    """GPUs that the machine type has."""
    save_on_notice: str = "replica"
    """As in the job file: `gang`, `replica` or `off`."""
    still_s: float | None = None
    """How long a program must be still (print nothing, move no bytes, compute nothing) to be ended
    as hung; None: no stillness ends it.
    """
    channel: ChannelConfig | None = None
    """How the agents of a synchronous job reach each other; None: the job has no peer channel."""
    tenure: int = 1
    """Number, from 1, of the job among those that have used this VM."""
    tenure_key: str = field(default="", repr=False)
    """Secret of this tenure, the last part of tokens' audiences; empty: no other job uses this VM.
    """

    @property
    def saves_together(self) -> bool:
        """Whether all members save when the VM of one of them is about to stop."""
        return self.save_on_notice == "gang" and self.channel is not None

    def without(self, ranks: Sequence[int]) -> VmConfig:
        """Return the config of a round without these members.

        The ranks and addresses that programs see have no gaps.
        """
        if not ranks or self.rank_base is None:
            return self
        gone = frozenset(ranks)
        gone_before = [rank for rank in gone if rank < self.rank_base]
        ranked_names = enumerate(self.vm_names, self.rank_base)
        world_size = int(self.environment["WORLD_SIZE"]) - len(gone)
        return replace(
            self,
            vm_names=[name for rank, name in ranked_names if rank not in gone],
            rank_base=self.rank_base - len(gone_before),
            tf_config=cluster_without(self.tf_config, gone),
            cluster_spec=cluster_without(self.cluster_spec, gone),
            environment={**self.environment, "WORLD_SIZE": str(world_size)},
        )

    @staticmethod
    def parse(text: str) -> VmConfig:
        """Parse the metadata value. Raises KeyError, TypeError or ValueError if it is malformed."""
        values = {
            name: value for name, value in dict(json.loads(text)).items() if value is not None
        }
        tf_config = expand_cluster(values.get("tf_config"))
        cluster_spec = expand_cluster(values.get("cluster_spec"))
        environment = dict(values["environment"])
        if tf_config is not None and "job" in tf_config:
            # The control plane sends the description of the job once. Programs find it in three
            # places.
            description = json.dumps(tf_config["job"], separators=(",", ":"))
            if cluster_spec is not None:
                cluster_spec.setdefault("job", description)
            if values.get("job_variable"):
                environment[values["job_variable"]] = description
        values["vm_names"] = expand(values["vm_names"])
        values["environment"] = environment
        values["grace_s"] = float(values["grace_s"])
        values["tf_config"] = tf_config
        values["cluster_spec"] = cluster_spec
        values["container"] = ContainerCommand.parse(values.get("container"))
        values["checkpoint_signal"] = signal.Signals[values.get("checkpoint_signal", "SIGTERM")]
        values["channel"] = ChannelConfig.parse(values.get("channel"))
        # `job_variable` is no field, and a newer control plane may send others.
        known = {field.name for field in dataclasses.fields(VmConfig)}
        return VmConfig(**{name: value for name, value in values.items() if name in known})


@dataclass(frozen=True)
class SliceHost:
    """One of the hosts of a Cloud TPU slice."""

    number: int
    """0 for the first host of the slice."""
    addresses: Sequence[str]
    """Addresses of all hosts of the slice, in the order of their numbers."""


@dataclass(frozen=True)
class AgentIdentity:
    """Which replica this agent runs, and on which VM."""

    vm: VmRef
    """The VM or TPU node, as the control plane knows it."""
    config: VmConfig
    instance: VmRef
    """The machine itself: equals `vm`, unless this is a host of a TPU node."""
    host: SliceHost | None = None
    """Set if the TPU slice has several hosts."""
    project_number: str = ""
    """Empty on a TPU VM, which belongs to a project of Google's."""

    @property
    def index(self) -> int:
        """The task index. Raises ValueError if the config does not list this VM."""
        return list(self.config.vm_names).index(self.vm.name)

    @property
    def is_primary(self) -> bool:
        """Whether this machine has rank 0, and so does what only one machine of a job has to do."""
        is_first_host = self.host is None or self.host.number == 0
        return self.config.rank_base == 0 and self.index == 0 and is_first_host


def parse_directive(text: str) -> ReceivedDirective:
    """Parse the metadata value. Raises KeyError, TypeError or ValueError if it is malformed."""
    stored = json.loads(text)
    if stored["action"] not in ACTIONS:
        raise ValueError(f"unknown action {stored['action']!r}")
    return ReceivedDirective(
        key=IncarnationKey(int(stored["attempt"]), int(stored["incarnation"])),
        action=stored["action"],
        slices=tuple(str(address) for address in stored.get("slices", ())),
        pause_s=float(stored.get("pause_s", 0)),
        save_number=int(stored.get("save_number", 0)),
        until=float(stored.get("until", 0)),
        without=tuple(int(rank) for rank in stored.get("without", ())),
        paid_until=float(stored.get("paid_until", 0)),
        asks_peers=bool(stored.get("asks_peers")),
        tenure=int(stored.get("tenure", 1)),
    )


def supersedes(new: IncarnationKey, old: IncarnationKey | None) -> bool:
    """Return whether `new` is later than `old`, so that facts about `old` no longer matter."""
    return old is None or new > old


def expand(texts: Any) -> list[str]:
    """Return a list of texts as it is, or those that a number range describes.

    A range has `first`, `count`, and the text before and after each number, `head` and `tail`.

    Raises KeyError, TypeError or ValueError for anything else.
    """
    if isinstance(texts, list):
        return texts
    first = int(texts["first"])
    count = int(texts["count"])
    return [f"{texts['head']}{number}{texts['tail']}" for number in range(first, first + count)]


def expand_cluster(spec: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return TF_CONFIG or CLUSTER_SPEC with the addresses of all replicas; None if the program gets
    none.
    """
    if spec is None:
        return None
    if "cluster" not in spec:
        return dict(spec)
    cluster = {role: expand(addresses) for role, addresses in spec["cluster"].items()}
    return {**spec, "cluster": cluster}


def cluster_without(
    spec: Mapping[str, Any] | None, gone: Collection[int]
) -> Mapping[str, Any] | None:
    """Return TF_CONFIG or CLUSTER_SPEC without the members of these ranks, and without roles that
    have no member left.
    """
    if not spec:
        return spec
    cluster: dict[str, list[str]] = {}
    rank = 0
    for role, addresses in (spec.get("cluster") or {}).items():  # in the order of ranks
        kept = []
        for address in addresses:
            if rank not in gone:
                kept.append(address)
            rank += 1
        if kept:
            cluster[role] = kept
    return {**spec, "cluster": cluster}
