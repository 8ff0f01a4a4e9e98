"""A program that uses Vertex AI's Python SDK. The last line of its output has the results as JSON.

python vertex_sdk.py ENDPOINT TOKEN TOKEN_OF_A_VIEWER

The test behind ENDPOINT ends the job `good` with status 0 and the job `bad` with status 2.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from google.api_core import exceptions
from google.auth.exceptions import RefreshError
from google.cloud import aiplatform
from google.cloud.aiplatform import hyperparameter_tuning, jobs
from google.oauth2.credentials import Credentials

POOL: dict[str, Any] = {
    "machine_spec": {"machine_type": "n1-standard-4"},
    "replica_count": 1,
    "container_spec": {
        "image_uri": "gcr.io/p/i:1",
        "args": ["--epochs", "5"],
        "env": [{"name": "A", "value": "b"}],
    },
}
PYTHON_POOL = {
    "machine_spec": {
        "machine_type": "n1-standard-8",
        "accelerator_type": "NVIDIA_TESLA_T4",
        "accelerator_count": 2,
    },
    "replica_count": 1,
    "disk_spec": {"boot_disk_type": "pd-ssd", "boot_disk_size_gb": 200},
    "python_package_spec": {
        "executor_image_uri": "us-docker.pkg.dev/vertex-ai/training/scikit-learn-cpu.0-23:latest",
        "package_uris": ["gs://bucket/p.tar.gz"],
        "python_module": "trainer.task",
    },
}


def init(token: str) -> None:
    aiplatform.init(
        project="my-project",
        location="us-central1",
        staging_bucket="gs://bucket",
        api_endpoint=sys.argv[1],
        api_transport="rest",
        credentials=Credentials(token),
    )


def a_job(name: str, *pools: dict[str, Any]) -> aiplatform.CustomJob:
    return aiplatform.CustomJob(
        name, list(pools) or [POOL], base_output_dir="gs://bucket/o", labels={"team": "a"}
    )


def submitted() -> dict[str, Any]:
    job = a_job("submitted", PYTHON_POOL, {**PYTHON_POOL, "replica_count": 3})
    job.submit(timeout=3600, restart_job_on_worker_restart=True)
    again = aiplatform.CustomJob.get(job.resource_name)
    scheduling = again.gca_resource.job_spec.scheduling
    result = {
        "state": again.state.name,
        "number": job.name,
        "labels": dict(again.labels),
        "replicas_of_pools": [
            pool.replica_count for pool in again.gca_resource.job_spec.worker_pool_specs
        ],
        "accelerator": (
            again.gca_resource.job_spec.worker_pool_specs[1].machine_spec.accelerator_type.name
        ),
        "timeout_s": scheduling.timeout.seconds,
        "restart_job_on_worker_restart": scheduling.restart_job_on_worker_restart,
        "created": again.create_time.isoformat(),
    }
    job.cancel()
    result["state_in_the_end"], result["error_code"] = job.state.name, job.error.code
    job.delete()
    result["deleted"] = call_error(lambda: aiplatform.CustomJob.get(job.resource_name))
    return result


def run() -> dict[str, Any]:
    """Wait for the end of a job that succeeds and of one that fails."""
    good, bad = a_job("good"), a_job("bad")
    good.run(sync=True)
    try:
        bad.run(sync=True)
        failed = "did not"
    except RuntimeError as error:
        failed = str(error)
    return {
        "good": {
            "state": good.state.name,
            "has_started": good.start_time is not None,
            "has_ended": good.end_time is not None,
        },
        "bad": failed,
    }


def listed() -> dict[str, Any]:
    for name in ("x1", "x2", "x3"):
        a_job(name).submit()
    every = aiplatform.CustomJob.list()
    return {
        "every": [job.display_name for job in every],
        "named": [
            job.display_name for job in aiplatform.CustomJob.list(filter='display_name="x2"')
        ],
        "ended": [
            job.display_name
            for job in aiplatform.CustomJob.list(filter='state="JOB_STATE_SUCCEEDED"')
        ],
        "ordered": [job.display_name for job in aiplatform.CustomJob.list(order_by="display_name")],
    }


def tuned() -> dict[str, Any]:
    """A study has many enums: goal, algorithm, scales."""
    job = aiplatform.HyperparameterTuningJob(
        display_name="tuned",
        custom_job=a_job("trial"),
        metric_spec={"accuracy": "maximize"},
        parameter_spec={
            "lr": hyperparameter_tuning.DoubleParameterSpec(min=0.001, max=0.1, scale="log"),
            "units": hyperparameter_tuning.IntegerParameterSpec(min=4, max=64, scale="linear"),
            "optimizer": hyperparameter_tuning.CategoricalParameterSpec(values=["sgd", "adam"]),
        },
        max_trial_count=4,
        parallel_trial_count=2,
        search_algorithm="random",
        labels={"team": "a"},
    )
    job.run(sync=False)
    job.wait_for_resource_creation()
    again = aiplatform.HyperparameterTuningJob.get(job.resource_name)
    study = again.gca_resource.study_spec
    result = {
        "max_trials": again.gca_resource.max_trial_count,
        "parallel_trials": again.gca_resource.parallel_trial_count,
        "algorithm": study.algorithm.name,
        "goal": study.metrics[0].goal.name,
        "scale": study.parameters[0].scale_type.name,
        "listed": [job.display_name for job in aiplatform.HyperparameterTuningJob.list()],
        "not_a_custom_job": [
            job.display_name for job in aiplatform.CustomJob.list(filter='display_name="tuned"')
        ],
    }
    again.cancel()  # not `job`, whose own thread would print the cancellation
    result["state_in_the_end"] = again.state.name
    again.delete()
    result["deleted"] = call_error(
        lambda: aiplatform.HyperparameterTuningJob.get(job.resource_name)
    )
    return result


def call_error(call: Callable[[], object]) -> list[str]:
    try:
        call()
    except exceptions.GoogleAPICallError as error:
        return [type(error).__name__, error.message]
    except RefreshError:
        return ["RefreshError", ""]
    return ["none", ""]


def refused() -> dict[str, Any]:
    result = {
        "unknown": call_error(lambda: aiplatform.CustomJob.get("17")),
        "wrong": call_error(
            lambda: a_job("wrong", {**POOL, "machine_spec": {"machine_type": "n9-huge-4"}}).submit()
        ),
        "account": call_error(
            lambda: a_job("account").submit(
                service_account="other@my-project.iam.gserviceaccount.com"
            )
        ),
    }
    init(sys.argv[3])
    result["viewer"] = call_error(lambda: a_job("viewer").submit())
    init("ya29.an-expired-access-token")
    result["stranger"] = call_error(aiplatform.CustomJob.list)
    return result


jobs._JOB_WAIT_TIME = 0.2
jobs._LOG_WAIT_TIME = 60
init(sys.argv[2])
stories = (submitted, run, listed, tuned, refused)
print(json.dumps({story.__name__: story() for story in stories}))
