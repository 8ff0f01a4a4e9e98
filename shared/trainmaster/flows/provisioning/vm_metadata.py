"""The metadata of new VMs: the agent, its configuration, and its first directive.
docs/interfaces.md, section 3.

All VMs of one bulk insert have the same metadata. Each finds its own replica in the configuration
by its name. A number range is the short form of a list whose texts differ only in a number, such as
the names of a role's VMs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from trainmaster.core.cluster.environment import JOB_VARIABLE, environment
from trainmaster.core.cluster.number_ranges import as_number_range
from trainmaster.core.cluster.tf_config import Cluster
from trainmaster.core.model.installation import LOG_ID, name_in_installation
from trainmaster.core.model.job import Job
from trainmaster.core.model.members import channel_members
from trainmaster.core.model.origin import Dialect
from trainmaster.core.model.plan import GcsFolder
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.saving import SaveOnNotice
from trainmaster.core.model.task_group import Program
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.model.watching import Preflight, TrackingRun, Watching
from trainmaster.core.reconcile.steps import Create
from trainmaster.core.reporting.job_log import task_base
from trainmaster.messaging import topics
from trainmaster.ports import AddressBook

GRACE_S: Final = 25
"""Time from SIGTERM to SIGKILL for the program.

Source: a Spot VM gets 30 s from the preemption notice to its end.
"""

Json = dict[str, object]


def vm_metadata(
    job: Job,
    create: Create,
    project: str,
    address_book: AddressBook,
    agent_files: Mapping[str, str],
) -> dict[str, str]:
    """Return the metadata entries of the VMs, or of the TPU node, that `create` requests.

    `agent_files` are the entries that are the same for every VM of the installation.
    """
    return {
        **agent_files,
        "trainmaster-vm-config": json.dumps(
            _vm_config(job, create, project, address_book),
            ensure_ascii=False,
            separators=(",", ":"),
        ),
        "trainmaster-directive": json.dumps(create.directive.to_metadata()),
        "enable-guest-attributes": "TRUE",
        "block-project-ssh-keys": "TRUE",
    }


def _vm_config(job: Job, create: Create, project: str, address_book: AddressBook) -> Json:
    plan = job.plan
    task_type = create.group.task_type
    return {
        "version": 1,
        "project": project,
        "job_id": job.job_id,
        "region": plan.where.region,
        "zone": create.zone,
        "task_type": task_type,
        "vm_generation": create.vm_generation,
        "hosts": create.group.hosts,
        # Compute Engine enforces the time limit of VMs; a TPU node deletes itself.
        "fuse_s": plan.fuse_s if create.group.tpu else None,
        "checkpoint_signal": plan.saving.signal,
        "stall_timeout_s": plan.watching.stall_timeout_s if task_type is not TaskType.PS else None,
        "grace_s": GRACE_S,
        **_tenure_config(job),
        **_watching_config(job, create),
        **_cluster_config(job, create, project, address_book),
        "packages": plan.packages_of(task_type),
        **_program_config(plan.program_of(task_type)),
        # Whether the agent replaces $(NAME) in arguments and variables.
        "expands": plan.origin.dialect is Dialect.VERTEX,
        **_tracking_config(plan.watching),
        "gcs": plan.access.gcs is not GcsFolder.OFF,
        "topics": {
            name: f"projects/{project}/topics/{name_in_installation(topic)}"
            for name, topic in (
                ("vm_ready", topics.VM_READY),
                ("replica_exit", topics.REPLICA_EXIT),
                ("maintenance", topics.MAINTENANCE),
            )
        },
        "log": {
            "name": f"projects/{project}/logs/{name_in_installation(LOG_ID)}",
            "task": task_base(task_type, plan.origin.dialect),
            "region": plan.where.region,
        },
    }


def _tenure_config(job: Job) -> Json:
    """Return the number and the secret of the job's tenure: its use of VMs that other jobs use
    before or after it. Empty for VMs that only this job uses.
    """
    if not job.machines:
        return {}
    return {"tenure": job.tenure, "tenure_key": job.machines.key}


def _tracking_config(watching: Watching) -> Json:
    """Return which replicas report to the experiment tracker; empty for the agent's default."""
    if watching.tracking_run is TrackingRun.AUTO:
        return {}
    return {"tracking_run": watching.tracking_run}


def _watching_config(job: Job, create: Create) -> Json:
    """Return what the agent examines and watches. Values that are the agent's defaults are left
    out.
    """
    config: Json = {}
    if job.plan.watching.preflight is not Preflight.OFF:
        gpu = create.group.accelerator
        config["preflight"] = job.plan.watching.preflight
        config["gpus"] = gpu.count if gpu else 0
    still_s = _still_s(job, create)
    if still_s is not None:
        config["still_s"] = still_s
    save_on_notice = _save_on_notice(job, create)
    if save_on_notice is not SaveOnNotice.REPLICA:
        config["save_on_notice"] = save_on_notice
    return config


def _cluster_config(job: Job, create: Create, project: str, address_book: AddressBook) -> Json:
    """Return what the replica must know about the others: names, addresses and ranks.

    If names and addresses form number ranges, the size does not depend on the number of replicas.
    The description of the job is only in TF_CONFIG: the agent copies it to CLUSTER_SPEC and to its
    own variable.
    """
    task_type = create.group.task_type
    names = {replica_id: vm_name(job.set_id, replica_id) for replica_id in job.plan.replica_ids}
    addresses = {
        replica_id: address_book.address(name, create.zone) for replica_id, name in names.items()
    }
    role_names = tuple(
        name for replica_id, name in names.items() if replica_id.task_type is task_type
    )
    channel = _channel(job, create, address_book)
    cluster = Cluster(job, project, addresses)
    variables = environment(cluster, task_type, create.zone, role_names)
    job_variable = JOB_VARIABLE if variables.pop(JOB_VARIABLE, None) is not None else None
    config: Json = {
        "vm_names": as_number_range(role_names),
        "tf_config": _with_number_ranges(cluster.tf_config(task_type)),
        "cluster_spec": _with_number_ranges(
            {key: value for key, value in cluster.cluster_spec(task_type).items() if key != "job"}
        ),
        "rank_base": cluster.rank_base(task_type),
        "slice_base": cluster.slice_base(task_type),
        "environment": variables,
        "job_variable": job_variable,
    }
    if job.plan.restarts.independent:
        config["independent"] = True
    if channel:
        config["channel"] = channel
    return config


def _still_s(job: Job, create: Create) -> int | None:
    """Return for how many seconds the programs may be still: without output, traffic and processor
    time; None: they are not watched, such as evaluators of a synchronous job, which only wait.
    """
    is_watched = not job.plan.is_synchronous or _has_channel(job, create)
    return job.plan.watching.still_s if is_watched else None


def _save_on_notice(job: Job, create: Create) -> SaveOnNotice:
    """Return who saves when a VM is about to go. A replica without peers saves alone."""
    saves = job.plan.saving.on_notice
    if saves is SaveOnNotice.GANG and not _has_channel(job, create):
        return SaveOnNotice.REPLICA
    return saves


def _has_channel(job: Job, create: Create) -> bool:
    """Whether replicas of this role take part in the peer channel."""
    return ReplicaId(create.group.task_type, 0) in channel_members(job.plan)


def _channel(job: Job, create: Create, address_book: AddressBook) -> Json | None:
    """Return the key and the members' addresses of the peer channel, over which the agents of a
    synchronous job send each other datagrams; None if these VMs have none.
    """
    members = channel_members(job.plan)
    first = ReplicaId(create.group.task_type, 0)
    if not job.channel_key or first not in members:
        return None
    names = [(member, vm_name(job.set_id, member)) for member in members]
    addresses = {member: address_book.channel_address(name, create.zone) for member, name in names}
    roles = dict.fromkeys(member.task_type for member in members)
    by_role = [
        [addresses[member] for member in members if member.task_type is role] for role in roles
    ]
    return {
        "key": job.channel_key,
        "first": members.index(first),  # number of the role's member with index 0
        "members": [as_number_range(role) for role in by_role],
    }


def _with_number_ranges(spec: Mapping[str, object]) -> Json:
    cluster = spec["cluster"]
    if not isinstance(cluster, dict):
        raise TypeError("TF_CONFIG and CLUSTER_SPEC have their addresses by role")
    return {
        **spec,
        "cluster": {role: as_number_range(addresses) for role, addresses in cluster.items()},
    }


def _program_config(program: Program) -> Json:
    """Return what the agent runs: a Python module or a container."""
    container = program.container
    return {
        "package_uris": program.package_uris,
        "python_module": program.python_module,
        "args": program.args,
        "job_dir": program.job_dir,
        "container": (
            {"image": container.image, "command": container.command} if container else None
        ),
        "variables": {
            variable.name: variable.value
            for variable in program.environment
            if variable.secret is None
        },
        "secrets": {
            variable.name: variable.secret
            for variable in program.environment
            if variable.secret is not None
        },
    }
