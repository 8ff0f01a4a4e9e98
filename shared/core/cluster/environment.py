"""The variables that the platform sets for every replica of a role, besides TF_CONFIG, CLUSTER_SPEC and RANK.

| who reads them     | variables                                                                    |
| ------------------ | ---------------------------------------------------------------------------- |
| PyTorch            | WORLD_SIZE, MASTER_ADDR, MASTER_PORT (RANK is the agent's: it knows its index) |
| AI Platform's jobs | CLOUD_ML_JOB_ID, CLOUD_ML_JOB, CLOUD_ML_PROJECT_ID, CLOUD_ML_REGION          |
| Vertex AI's jobs   | CLOUD_ML_JOB_ID, CLOUD_ML_PROJECT_ID, AIP_MODEL_DIR and its kin              |
| trials             | CLOUD_ML_TRIAL_ID, CLOUD_ML_HP_METRIC_TAG (CLOUD_ML_HP_METRIC_FILE is the agent's) |
| programs on TPUs   | TPU_CONFIG, TPU_NAME                                                         |
| libtpu, JAX        | MEGASCALE_*, on several slices of one kind (…_SLICE_ID is the agent's)       |

Source: the service's documented list, and `environment_variables.py` of google-cloud-aiplatform for AIP_*; JAX's and
Ray's uses of MEGASCALE_*.
"""

from __future__ import annotations

import json
from typing import Final

from shared.core.cluster.tf_config import Cluster
from shared.core.model.job import public_id
from shared.core.model.plan import Dialect
from shared.core.model.replica_id import TaskType
from shared.core.reconcile.slice_addresses import MEGASCALE_PORT, slice_placeholder
from shared.core.reconcile.trial_jobs import trial_number

AIP_DIRECTORIES: Final = {
    "AIP_MODEL_DIR": "model",
    "AIP_CHECKPOINT_DIR": "checkpoints",
    "AIP_TENSORBOARD_LOG_DIR": "logs",
}
"""Below baseOutputDirectory, each with a slash at its end. Source: Vertex AI's CustomJobSpec."""


def environment(cluster: Cluster, task_type: TaskType, zone: str, names: tuple[str, ...]) -> dict[str, str]:
    """`names`: the role's VMs or TPU nodes, in index order."""
    job, plan = cluster.job, cluster.job.plan
    host, _, port = cluster.address(plan.primary).rpartition(":")
    found = {
        "WORLD_SIZE": str(cluster.world_size()),
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "CLOUD_ML_JOB_ID": public_id(job.job_id),
        "CLOUD_ML_PROJECT_ID": cluster.project,
    }
    if job.trial_of is not None:
        found |= {"CLOUD_ML_TRIAL_ID": trial_number(job), "CLOUD_ML_HP_METRIC_TAG": job.trial_of.metric_tag}
    if plan.dialect is Dialect.VERTEX:
        base = (plan.output_directory or "").rstrip("/")
        found |= {name: f"{base}/{folder}/" for name, folder in AIP_DIRECTORIES.items() if base}
    else:
        found["CLOUD_ML_JOB"] = json.dumps(cluster.said(task_type), separators=(",", ":"))
        found["CLOUD_ML_REGION"] = plan.region
    if plan.group(task_type).tpu is not None:
        # The program runs beside the chips today: `local` is what TensorFlow's resolver takes for that.
        node = {"project": cluster.project, "zone": zone, "tpu_node_name": names[0]}
        found |= {"TPU_CONFIG": json.dumps(node), "TPU_NAME": "local"}
    if cluster.slice_base(task_type) is not None:
        found |= {
            "MEGASCALE_COORDINATOR_ADDRESS": f"{slice_placeholder(0)}:{MEGASCALE_PORT}",
            "MEGASCALE_NUM_SLICES": str(len(plan.slices)),
            "MEGASCALE_PORT": MEGASCALE_PORT,
        }
    return found
