"""Variables with which launchers and trackers find their peers and their run, without a line in the
program.

They are defaults: a variable of the job, a secret, or the platform's own wins. None describes a
cluster of one machine, of TPU hosts, which find each other, or of independent replicas.

| read by                              | variables                                                                |
| ------------------------------------ | ------------------------------------------------------------------------ |
| torchrun (`distributed/argparse_util.py`) | PET_NNODES, PET_NODE_RANK, PET_MASTER_*, PET_NPROC_PER_NODE         |
| JAX (`_src/distributed.py`)          | JAX_COORDINATOR_ADDRESS; Kubeflow's JAX_NUM_PROCESSES, JAX_PROCESS_ID    |
| Accelerate (`state.py`)              | ACCELERATE_USE_CPU, without GPUs: its processes ignore each other without it |
| Keras (`distribution_lib.py`)        | KERAS_DISTRIBUTION_*, with one process per machine                       |
| Ray (`ray symmetric-run`)            | RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT                                   |
| W&B, Comet, Neptune                  | the run of the job, on rank 0, where the job names the tracker           |
| Hugging Face's Trainer               | TENSORBOARD_LOGGING_DIR, where /gcs is mounted                           |
| MLflow                               | the run of the job, on rank 0, with `trackingRun: one`                   |
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

MLFLOW_ID = "SERVERLESS_GPU_COMPUTE_ASSOCIATED_JOB_RUN_ID"
RAY_WAIT_S = 600  # Ray's own 30 s are shorter than the start of a VM


def launch_variables(platform: Mapping[str, str], gpus: int) -> dict[str, str]:
    """Return the variables of launchers.

    `platform`: the platform's variables. `gpus`: GPUs of this machine.
    """
    rank, size = platform.get("RANK"), platform.get("WORLD_SIZE", "1")
    if rank is None or int(size) <= 1 or "TPU_CONFIG" in platform:
        return {}
    address, port = platform["MASTER_ADDR"], platform["MASTER_PORT"]
    variables = {
        "PET_NNODES": size,
        "PET_NODE_RANK": rank,
        "PET_MASTER_ADDR": address,
        "PET_MASTER_PORT": port,
        "PET_NPROC_PER_NODE": str(max(gpus, 1)),
        "JAX_COORDINATOR_ADDRESS": f"{address}:{port}",
        "JAX_NUM_PROCESSES": size,
        "JAX_PROCESS_ID": rank,
        "RAY_SYMMETRIC_RUN_CLUSTER_WAIT_TIMEOUT": str(RAY_WAIT_S),
    }
    if not gpus:
        variables["ACCELERATE_USE_CPU"] = "true"
    if gpus <= 1:
        variables["KERAS_DISTRIBUTION_JOB_ADDRESSES"] = f"{address}:{port}"
        variables["KERAS_DISTRIBUTION_NUM_PROCESSES"] = size
        variables["KERAS_DISTRIBUTION_PROCESS_ID"] = rank
    return variables


def log_folder_variables(platform: Mapping[str, str], job_dir: str | None) -> dict[str, str]:
    """Return where Hugging Face's Trainer writes summary events, below /gcs: where the job's are
    looked for.

    `platform`: as in `launch_variables`. Source: transformers/integrations/integration_utils.py.
    """
    folder = platform.get("AIP_TENSORBOARD_LOG_DIR") or (
        f"{job_dir.rstrip('/')}/logs" if job_dir else ""
    )
    return (
        {"TENSORBOARD_LOGGING_DIR": f"/gcs/{folder[len('gs://') :]}"}
        if folder.startswith("gs://")
        else {}
    )


def run_variables(
    project: str, job_id: str, names: Iterable[str], tracking_run: str = "auto"
) -> dict[str, str]:
    """Return the variables that name one run of each tracker for all incarnations of the job.

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
