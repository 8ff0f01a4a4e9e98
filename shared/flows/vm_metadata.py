"""What a machine is told when it is made: the metadata of every VM of one bulk insert, or of a TPU node.

docs/interfaces.md section 3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from shared.core.cluster.environment import environment
from shared.core.cluster.tf_config import Cluster
from shared.core.model.job import Job
from shared.core.model.plan import Dialect
from shared.core.model.vm_names import vm_name
from shared.core.reconcile.steps import Create
from shared.core.reporting.job_log import LOG_ID, task_base
from shared.messaging import topics
from shared.ports import AddressBook

GRACE_S: Final = 25
"""From SIGTERM to SIGKILL for the program. Source: Spot VMs get 30 s from the signal to the end."""

Json = dict[str, object]


def metadata(
    job: Job, create: Create, project: str, book: AddressBook, agent_files: Mapping[str, str]
) -> dict[str, str]:
    """`agent_files`: the entries that are the same for every VM."""
    names = {replica_id: vm_name(job.job_id, replica_id) for replica_id in job.plan.replica_ids}
    addresses = {replica_id: book.address(name, create.zone) for replica_id, name in names.items()}
    cluster = Cluster(job, project, addresses)
    task_type = create.group.task_type
    program = job.plan.program_of(task_type)
    container = program.container
    of_role = tuple(name for replica_id, name in names.items() if replica_id.task_type is task_type)
    topic = f"projects/{project}/topics/"
    gang: Json = {
        "version": 1,
        "project": project,
        "job_id": job.job_id,
        "region": job.plan.region,
        "zone": create.zone,
        "task_type": task_type,
        "vm_names": of_role,
        "vm_generation": create.vm_generation,
        "tf_config": cluster.tf_config(task_type),
        "cluster_spec": cluster.cluster_spec(task_type),
        "rank_base": cluster.rank_base(task_type),
        "slice_base": cluster.slice_base(task_type),
        "environment": environment(cluster, task_type, create.zone, of_role),
        "packages": job.plan.packages,
        "package_uris": program.package_uris,
        "python_module": program.python_module,
        "args": program.args,
        "job_dir": program.job_dir,
        "container": {"image": container.image, "command": container.command} if container else None,
        "variables": {each.name: each.value for each in program.environment if each.secret is None},
        "secrets": {each.name: each.secret for each in program.environment if each.secret is not None},
        "expands": job.plan.dialect is Dialect.VERTEX,
        "hosts": create.group.hosts,
        "fuse_s": job.plan.fuse_s if create.group.tpu else None,
        "checkpoint_signal": job.plan.checkpoint_signal,
        "grace_s": GRACE_S,
        "topics": {
            "vm_ready": topic + topics.VM_READY,
            "replica_exit": topic + topics.REPLICA_EXIT,
            "maintenance": topic + topics.MAINTENANCE,
        },
        "log": {
            "name": f"projects/{project}/logs/{LOG_ID}",
            "task": task_base(task_type, job.plan.dialect),
            "region": job.plan.region,
        },
    }
    return {
        **agent_files,
        "trainmaster-vm-config": json.dumps(gang),
        "trainmaster-directive": json.dumps(create.directive.to_metadata()),
        "serial-port-logging-enable": "TRUE",
    }
