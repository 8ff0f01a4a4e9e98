"""The plan of a job: everything its spec means, resolved once when the job is accepted.

    Plan
     ├── groups: TaskGroup per task type     number of replicas, machine, disk, its own Program
     ├── program: Program                    packages or container, arguments, environment variables
     ├── where: Where                        zones, alternatives
     ├── image: BootImage                    boot disk, runtime
     ├── limits: Limits                      time, cost, priority
     ├── restarts: Restarts                  exit policy, gang, elastic
     ├── saving: SavePolicy                  signal, whom a notice reaches
     ├── watching: Watching                  preflight, stalls, trackers
     ├── access: Access                      account, network, key, buckets
     └── origin: Origin                      format, algorithm, substitutions

A candidate is a zone in which the job's VMs may be requested, or such a zone of one of the
alternatives that its job file lists. A gang is the VMs that are requested together. Members are the
replicas of a synchronous job, which trains in rounds: all start together, and restart together.

Parts with several classes are in modules of their names. A plan never changes: a later change of
settings has no effect on a job that was accepted before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from math import inf

from trainmaster.core.model.cap import Cap
from trainmaster.core.model.exit_policy import ExitPolicy
from trainmaster.core.model.origin import Origin
from trainmaster.core.model.purchase import Purchase
from trainmaster.core.model.replica_id import PRIMARY_TYPES, ReplicaId, TaskType
from trainmaster.core.model.saving import SavePolicy
from trainmaster.core.model.task_group import Program, TaskGroup
from trainmaster.core.model.watching import Watching
from trainmaster.core.model.where import Where
from trainmaster.core.timeouts import CHAIN_S, FUSE_SLACK_S


class GcsFolder(StrEnum):
    """Whether programs find the buckets of Cloud Storage below /gcs.

    Nothing can be written there otherwise.
    """

    OFF = "off"
    IF_POSSIBLE = "if_possible"  # a CustomJob that does not say whether it needs them
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class Elastic:
    """`trainmaster.elastic`: a synchronous job goes on without members whose VMs Google does not
    have.
    """

    min_replicas: int
    """Members that a round needs, with the primary."""
    after_s: int = 0
    """Seconds from the refusal of a VM to the round without it."""


@dataclass(frozen=True, slots=True)
class BootImage:
    """The software of the VMs before the job's own packages are installed."""

    source: str
    """Image of the boot disk."""
    runtime: str
    """Name of the runtime that the image is made for."""
    packages: tuple[str, ...] = ()
    """Packages that pip adds to the image, so that the runtime has all packages of its version."""
    gpu_packages: tuple[str, ...] = ()
    """Packages that pip adds instead on VMs with GPUs; empty: the same as `packages`."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a job may run and wait, what it may cost, and its place in the queue."""

    max_running_s: int
    """maxRunningTime in seconds, counted from RUNNING."""
    max_wait_s: int | None = None
    """maxWaitTime in seconds, counted from creation until RUNNING; None: no limit."""
    priority: int = 0
    """Position in the admission queue: larger first."""
    cap: Cap | None = None
    usd_per_hour: float = 0.0
    """The most that all machines cost per hour at list prices, in whole cents; 0: the installation
    had no limit of that when the job was accepted, so none counts it.
    """


@dataclass(frozen=True, slots=True)
class Restarts:
    """Which replicas depend on each other, and what is repeated after a failure."""

    exit_policy: ExitPolicy = field(default_factory=ExitPolicy)
    """Which exit codes are retried."""
    restart_job_on_worker_restart: bool = False
    """Whether the restart of one replica reruns the whole job."""
    disable_retries: bool = False
    """Whether the first failure of a replica ends the job."""
    gang: bool = True
    """Whether all VMs of the job must exist before it runs.

    False: see `trainmaster.core.model.gang`.
    """
    independent: bool = False
    """Whether no replica depends on another."""
    elastic: Elastic | None = None
    """None: each round needs all members."""


@dataclass(frozen=True, slots=True)
class Access:
    """The account that the VMs of a job use, and the resources that they can reach."""

    service_account: str | None = None
    """E-mail address of the service account of the VMs; None: the installation's default."""
    network: str | None = None
    """VPC network of the VMs; None: the installation's default."""
    kms_key: str | None = None
    """Key that encrypts the boot disks."""
    gcs: GcsFolder = GcsFolder.OFF


@dataclass(frozen=True)
class Plan:
    """The resolved spec of a job."""

    groups: tuple[TaskGroup, ...]
    """One group per task type that the job has."""
    program: Program
    """The program of every role that has none of its own."""
    where: Where
    image: BootImage
    limits: Limits
    restarts: Restarts = field(default_factory=Restarts)
    saving: SavePolicy = field(default_factory=SavePolicy)
    watching: Watching = field(default_factory=Watching)
    access: Access = field(default_factory=Access)
    origin: Origin = field(default_factory=Origin)
    keep_s: int | None = None
    """How long machines are kept for a next job after this one's end, in seconds; 0: it only takes
    machines that an earlier job has kept.

    None: it does neither. Not stored if it is None.
    """
    persistent_resource: str | None = None
    """`persistentResourceId` that another job must name to take its machines. None: no name is
    needed; then it is not stored.
    """

    @cached_property
    def replica_ids(self) -> tuple[ReplicaId, ...]:
        return tuple(
            ReplicaId(group.task_type, index)
            for group in self.groups
            for index in range(group.count)
        )

    @property
    def primary(self) -> ReplicaId:
        """The replica whose exit 0 completes the job: chief or master, else worker 0."""
        found = (
            ReplicaId(group.task_type, 0)
            for group in self.groups
            if group.task_type in PRIMARY_TYPES
        )
        return next(found, ReplicaId(TaskType.WORKER, 0))

    @cached_property
    def is_synchronous(self) -> bool:
        """Whether the members of the cluster train together and run in rounds
        (`trainmaster.core.model.round`).
        """
        has_servers = any(group.task_type is TaskType.PS for group in self.groups)
        if self.restarts.independent or has_servers:
            return False
        trained = (group for group in self.groups if group.task_type is not TaskType.EVALUATOR)
        return sum(group.count * group.hosts for group in trained) > 1 or self.where.has_rounds

    @property
    def fuse_s(self) -> int:
        """Time limit of the job's VMs, in seconds from their creation: Compute Engine deletes a VM
        that nothing else has deleted by then, and a TPU node deletes itself.
        """
        limits = self.limits
        wanted_s = limits.max_running_s + (limits.max_wait_s or 0)
        paid_s = limits.cap.longest_s if limits.cap else inf
        next_jobs_s = 0 if self.keep_s is None else CHAIN_S
        return int(min(wanted_s, paid_s)) + FUSE_SLACK_S + next_jobs_s

    @property
    def tpu_zones(self) -> tuple[str, ...]:
        """Zones in which TPU nodes of the job may exist; empty if the job uses no TPU."""
        return self.where.zones if any(group.tpu for group in self.groups) else ()

    @cached_property
    def slices(self) -> tuple[ReplicaId, ...]:
        """TPU slices that must learn each other's addresses, in rank order.

        A slice has no DNS name, so every member of its cluster needs its address. Empty if the job
        has no slice, or if one slice is the whole cluster. Evaluators are not members of the
        cluster.
        """
        cluster = [group for group in self.groups if group.task_type is not TaskType.EVALUATOR]
        groups = [group for group in cluster if group.tpu]
        if not groups or sum(group.count for group in cluster) == 1:
            return ()
        groups.sort(key=lambda group: list(TaskType).index(group.task_type))
        return tuple(
            ReplicaId(group.task_type, index) for group in groups for index in range(group.count)
        )

    def at(self, candidate: int) -> Plan:
        """Return the plan of the VMs of a candidate: with the values of its option, and the region
        of its zone.
        """
        where = self.where
        if not where.options:
            return self
        option = where.options[where.candidates[candidate].option]
        names = {variable.name for variable in option.environment}

        def with_environment(program: Program) -> Program:
            kept = tuple(variable for variable in program.environment if variable.name not in names)
            return replace(program, environment=(*kept, *option.environment))

        own = (group.program and with_environment(group.program) for group in self.groups)
        return replace(
            self,
            groups=tuple(
                replace(group, program=program)
                for group, program in zip(option.groups, own, strict=True)
            ),
            program=with_environment(self.program),
            where=replace(
                where,
                region=where.zones[candidate].rpartition("-")[0],
                options=(),
                candidates=(),
            ),
        )

    def keeps_vms(self, one: int, other: int) -> bool:
        """Whether two candidates differ only in how VMs are bought, so that the VMs of one may stay
        in the other.
        """
        where = self.where
        if not where.options or where.zones[one] != where.zones[other]:
            return one == other
        first = where.options[where.candidates[one].option]
        second = where.options[where.candidates[other].option]
        are_same_machines = _without_purchase(first.groups) == _without_purchase(second.groups)
        return are_same_machines and first.environment == second.environment

    def group(self, task_type: TaskType) -> TaskGroup:
        """Return the group of a task type that the job has."""
        return next(group for group in self.groups if group.task_type == task_type)

    @property
    def has_containers(self) -> bool:
        """Whether a program of the job runs in a container."""
        programs = (self.program, *(group.program for group in self.groups if group.program))
        return any(program.container is not None for program in programs)

    def packages_of(self, task_type: TaskType) -> tuple[str, ...]:
        """Return the packages that pip adds to the image on the VMs of this role."""
        has_gpus = self.group(task_type).accelerator is not None
        image = self.image
        return image.gpu_packages if has_gpus and image.gpu_packages else image.packages

    def with_versions(self, versions: Mapping[str, str]) -> Plan:
        """Return the plan with these packages and container images replaced, in the programs of the
        job and its roles.

        `versions`: URI or name as requested → the same with its generation or digest.
        """

        def replaced(program: Program) -> Program:
            uris = tuple(versions.get(uri, uri) for uri in program.package_uris)
            container = program.container
            if container is not None:
                container = replace(container, image=versions.get(container.image, container.image))
            return replace(program, package_uris=uris, container=container)

        groups = (
            replace(group, program=replaced(group.program)) if group.program else group
            for group in self.groups
        )
        return replace(self, program=replaced(self.program), groups=tuple(groups))

    @property
    def versions(self) -> dict[str, str]:
        """The packages and container images of the job, as requested → with the version that was
        accepted.
        """
        programs = [self.program, *(group.program for group in self.groups if group.program)]
        names = [uri for program in programs for uri in program.package_uris]
        images = [program.container.image for program in programs if program.container]
        return {uri.partition("#")[0]: uri for uri in names} | {
            image.partition("@")[0]: image for image in images
        }

    def program_of(self, task_type: TaskType) -> Program:
        """Return the program that this role runs."""
        return self.group(task_type).program or self.program


def _without_purchase(groups: tuple[TaskGroup, ...]) -> tuple[TaskGroup, ...]:
    """Return the groups without how their VMs are bought."""
    return tuple(replace(group, purchase=Purchase()) for group in groups)
