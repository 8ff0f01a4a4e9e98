"""Environment variables of all replicas of a role, besides TF_CONFIG, CLUSTER_SPEC and RANK.

| read by            | variables                                                          |
| ------------------ | ------------------------------------------------------------------ |
| PyTorch            | WORLD_SIZE, MASTER_ADDR, MASTER_PORT                               |
|                    | (the agent sets RANK, because it knows the index)                  |
| AI Platform's jobs | CLOUD_ML_JOB_ID, CLOUD_ML_JOB, CLOUD_ML_PROJECT_ID,                |
|                    | CLOUD_ML_REGION                                                    |
| Vertex AI's jobs   | CLOUD_ML_JOB_ID, CLOUD_ML_PROJECT_ID,                              |
|                    | AIP_MODEL_DIR and the other AIP_* directories                      |
| trials             | CLOUD_ML_TRIAL_ID, CLOUD_ML_HP_METRIC_TAG                          |
|                    | (the agent sets CLOUD_ML_HP_METRIC_FILE)                           |
| elastic jobs       | TRAINMASTER_REPLICAS: the full size, however small WORLD_SIZE is   |
| programs on TPUs   | TPU_CONFIG, TPU_NAME                                               |
| libtpu, JAX        | MEGASCALE_*, on several slices of one type                         |
|                    | (the agent sets MEGASCALE_SLICE_ID)                                |

Source: AI Platform Training's documented list; `environment_variables.py` of
google-cloud-aiplatform for AIP_*; JAX's and Ray's uses of MEGASCALE_*.
"""

from __future__ import annotations

import json
from typing import Final

from trainmaster.core.cluster.tf_config import Cluster
from trainmaster.core.model.job import public_id
from trainmaster.core.model.origin import Dialect
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.tuning import trial_number
from trainmaster.core.reconcile.slice_addresses import MEGASCALE_PORT, slice_placeholder

JOB_VARIABLE: Final = "CLOUD_ML_JOB"
"""The description of the job as JSON, for jobs in AI Platform's format."""
AIP_DIRECTORIES: Final = {
    "AIP_MODEL_DIR": "model",
    "AIP_CHECKPOINT_DIR": "checkpoints",
    "AIP_TENSORBOARD_LOG_DIR": "logs",
}
"""Directories below baseOutputDirectory, each with a slash at its end.

Source: Vertex AI's CustomJobSpec.
"""


def environment(
    cluster: Cluster, task_type: TaskType, zone: str, names: tuple[str, ...]
) -> dict[str, str]:
    """Return the variables of a role. `names` are the role's VMs or TPU nodes, in index order."""
    job = cluster.job
    plan = cluster.job.plan
    host, _, port = cluster.address(plan.primary).rpartition(":")
    variables = {
        "WORLD_SIZE": str(cluster.world_size()),
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "CLOUD_ML_JOB_ID": public_id(job.job_id),
        "CLOUD_ML_PROJECT_ID": cluster.project,
    }
    if plan.restarts.elastic:
        variables["TRAINMASTER_REPLICAS"] = str(len(plan.replica_ids))
    if job.trial_of is not None:
        variables["CLOUD_ML_TRIAL_ID"] = trial_number(job.job_id)
        variables["CLOUD_ML_HP_METRIC_TAG"] = job.trial_of.metric_tag
    if plan.origin.dialect is Dialect.VERTEX:
        base = (plan.origin.output_directory or "").rstrip("/")
        variables |= {name: f"{base}/{folder}/" for name, folder in AIP_DIRECTORIES.items() if base}
    else:
        variables[JOB_VARIABLE] = json.dumps(
            cluster.job_description(task_type), separators=(",", ":")
        )
        variables["CLOUD_ML_REGION"] = plan.where.region
    if plan.group(task_type).tpu is not None:
        node = {"project": cluster.project, "zone": zone, "tpu_node_name": names[0]}
        variables["TPU_CONFIG"] = json.dumps(node)
        # TensorFlow's resolver takes `local` for chips on the program's own host.
        variables["TPU_NAME"] = "local"
    trains_across_slices = cluster.slice_base(task_type) is not None
    if trains_across_slices:
        variables |= {
            "MEGASCALE_COORDINATOR_ADDRESS": f"{slice_placeholder(rank=0)}:{MEGASCALE_PORT}",
            "MEGASCALE_NUM_SLICES": str(len(plan.slices)),
            "MEGASCALE_PORT": MEGASCALE_PORT,
        }
    return variables
