"""What the program is started with: its arguments and its environment."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from shared.agent.control.vm_config import Gang, ReplicaId


def environment_of(replica_id: ReplicaId, secrets: Mapping[str, str], slices: Sequence[str] = ()) -> dict[str, str]:
    """The variables the program sees besides the VM's own: the job's, and, whatever these are called, what tells it
    where it is: TF_CONFIG, CLUSTER_SPEC, RANK, the gang's, and those of a TPU slice. ``slices``: where these are."""
    gang = replica_id.gang
    ours = {name: str(value) for name, value in gang.environment.items()}
    for name, spec in (("TF_CONFIG", gang.tf_config), ("CLUSTER_SPEC", gang.cluster_spec)):
        if spec is not None:
            ours[name] = json.dumps({**spec, "task": {**spec.get("task", {}), "index": replica_id.index}})
    environment = {**gang.variables, **secrets, **{name: _resolved(text, slices) for name, text in ours.items()}}
    if replica_id.project_number and "CLOUD_ML_PROJECT_ID" in environment:
        environment["CLOUD_ML_PROJECT_ID"] = replica_id.project_number  # the service's was the number, not the id
    host = replica_id.host
    if gang.slice_base is not None:
        environment["MEGASCALE_SLICE_ID"] = str(gang.slice_base + replica_id.index)
    if gang.rank_base is not None:
        environment["RANK"] = str(gang.rank_base + replica_id.index * gang.hosts + (host.number if host else 0))
    if host is not None:
        environment["TPU_WORKER_ID"] = environment["CLOUD_TPU_TASK_ID"] = str(host.number)
        environment["TPU_WORKER_HOSTNAMES"] = ",".join(host.addresses)
        if gang.rank_base == 0 and replica_id.index == 0 and host.addresses:
            # Rank 0 is this slice's first host, and no name of a TPU node leads there.
            environment["MASTER_ADDR"] = host.addresses[0]
    return environment


def _resolved(text: str, slices: Sequence[str]) -> str:
    """With addresses in the place of the names that stand for them: `shared.core.reconcile.slice_addresses`."""
    for number, address in enumerate(slices):
        text = text.replace(f"slice-{number}.trainmaster.internal", address or f"slice-{number}.trainmaster.internal")
    return text


def arguments_of(gang: Gang) -> list[str]:
    """``--job-dir`` comes last, as two tokens, even where the arguments hold one too."""
    arguments = [str(argument) for argument in gang.args]
    return [*arguments, "--job-dir", gang.job_dir] if gang.job_dir else arguments


def command_of(gang: Gang) -> list[str]:
    """The documented command line of a module."""
    return ["python3", "-m", gang.python_module, *arguments_of(gang)]


def task_line(replica_id: ReplicaId) -> str:
    """What the service's own launcher said it was started with."""
    config = replica_id.gang.tf_config or {}
    task = {"type": config.get("task", {}).get("type", replica_id.gang.task_type), "index": replica_id.index}
    values = {"cluster": config.get("cluster", {}), "task": task, "job": config.get("job", {})}
    arguments = [f"--{name}={json.dumps(value, ensure_ascii=False)}" for name, value in values.items()]
    if "TPU_CONFIG" in replica_id.gang.environment:
        arguments.append(f"--tpu_node={replica_id.gang.environment['TPU_CONFIG']}")
    return f"Running task with arguments: {' '.join(arguments)}"
