"""Variables with which launchers and trackers find their peers and their run, without a line in the
program.

They are defaults: a variable of the job, a secret, or the platform's own wins. None describes a
cluster of one machine, of TPU hosts, which find each other, or of independent replicas.

| read by                       | variables                                              |
| ----------------------------- | ------------------------------------------------------ |
| torchrun, Accelerate, Ray     | `variables` of their rows in `launchers.py`            |
| JAX (`_src/distributed.py`)   | JAX_COORDINATOR_ADDRESS                                |
| Kubeflow's programs for JAX   | JAX_NUM_PROCESSES, JAX_PROCESS_ID                      |
| Kubeflow's ones for LightGBM  | WORKER_ADDRS, WORKER_PORT                              |
| Keras (`distribution_lib.py`) | KERAS_DISTRIBUTION_*, with one process per machine     |
| W&B, Comet, Neptune           | the job's run, on rank 0, if the job names the tracker |
| Hugging Face's Trainer        | TENSORBOARD_LOGGING_DIR, where /gcs is mounted         |
| MLflow                        | the job's run, on rank 0, with `trackingRun: one`      |
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping

from trainmaster.agent.program.launchers import LAUNCHERS, Cluster

MLFLOW_ID = "SERVERLESS_GPU_COMPUTE_ASSOCIATED_JOB_RUN_ID"


def launch_variables(platform: Mapping[str, str], gpus: int) -> dict[str, str]:
    """Return the variables of launchers, and of libraries that find their peers themselves.

    `platform`: the platform's variables. `gpus`: GPUs of this machine.
    """
    rank = platform.get("RANK")
    size = platform.get("WORLD_SIZE", "1")
    if rank is None or int(size) <= 1 or "TPU_CONFIG" in platform:
        return {}
    address = platform["MASTER_ADDR"]
    port = platform["MASTER_PORT"]
    variables = {
        "JAX_COORDINATOR_ADDRESS": f"{address}:{port}",
        "JAX_NUM_PROCESSES": size,
        "JAX_PROCESS_ID": rank,
    }
    variables.update(worker_variables(platform.get("TF_CONFIG", "{}")))
    cluster = Cluster(rank, size, address, port, gpus)
    for launcher in LAUNCHERS:
        variables.update(launcher.variables(cluster))
    if gpus <= 1:
        variables["KERAS_DISTRIBUTION_JOB_ADDRESSES"] = f"{address}:{port}"
        variables["KERAS_DISTRIBUTION_NUM_PROCESSES"] = size
        variables["KERAS_DISTRIBUTION_PROCESS_ID"] = rank
    return variables


def worker_variables(tf_config: str) -> dict[str, str]:
    """Return the host names of the workers, in index order, and their port.

    Source: kubeflow/training-operator v1.9.0, pkg/controller.v1/xgboost/xgboost.go, which sets them
    beside MASTER_ADDR and MASTER_PORT.
    """
    workers = json.loads(tf_config).get("cluster", {}).get("worker", [])
    addresses = [worker.rpartition(":") for worker in workers]
    if not addresses:
        return {}
    return {
        "WORKER_ADDRS": ",".join(host for host, _, _ in addresses),
        "WORKER_PORT": addresses[0][2],
    }


def log_folder_variables(platform: Mapping[str, str], job_dir: str | None) -> dict[str, str]:
    """Return the variable that makes Hugging Face's Trainer write summary events below /gcs, in the
    folder of the job where the agent looks for them; none if the job has no such folder.

    `platform`: as in `launch_variables`. Source: transformers/integrations/integration_utils.py.
    """
    folder = platform.get("AIP_TENSORBOARD_LOG_DIR", "")
    if not folder and job_dir:
        folder = f"{job_dir.rstrip('/')}/logs"
    if not folder.startswith("gs://"):
        return {}
    return {"TENSORBOARD_LOGGING_DIR": f"/gcs/{folder[len('gs://') :]}"}


def run_variables(
    project: str, job_id: str, names: Iterable[str], tracking_run: str = "auto"
) -> dict[str, str]:
    """Return the variables that name one run of each tracker for all incarnations of the job, its
    executions.

    `names`: the job's own variables and secrets. A tracker is used if one of them begins with its
    prefix. A job that sets one of a tracker's variables itself, such as WANDB_RESUME=never, decides
    about all of them. `tracking_run`: as in the job file. MLflow is named only by `one`: it merges
    all runs of the program.
    """
    if tracking_run == "each":
        return {}
    names = set(names)
    digest = hashlib.sha256(f"{project}/{job_id}".encode()).hexdigest()
    trackers = (
        # Source: wandb forbids :;,#?/' in ids.
        {
            "WANDB_RUN_ID": f"{re.sub('[^A-Za-z0-9_-]', '-', job_id)[:40]}-{digest[:8]}",
            "WANDB_RESUME": "allow",
        },
        # Source: Comet: 32 to 50 alphanumeric characters.
        {"COMET_EXPERIMENT_KEY": digest[:40], "COMET_RESUME_STRATEGY": "get_or_create"},
        # Source: Neptune: at most 36 characters.
        {"NEPTUNE_CUSTOM_RUN_ID": digest[:32]},
    )
    # Source: mlflow/tracking/fluent.py, which resumes the run that a tag of the experiment has for
    # this id. MLFLOW_RUN_ID must name a run that exists.
    variables = {MLFLOW_ID: digest[:32]} if tracking_run == "one" else {}
    for tracker in trackers:
        prefix = next(iter(tracker)).partition("_")[0] + "_"
        if any(name.startswith(prefix) for name in names) and not names & tracker.keys():
            variables.update(tracker)
    return variables
