"""A program that uses training pipelines with Vertex AI's SDK. The last line of its output has the
results as JSON.

python vertex_pipeline_calls.py ENDPOINT TOKEN

The test behind ENDPOINT ends a job by its name: `good` with status 0, `bad` with a failure; a job
`waiting` goes on.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from google.cloud import aiplatform
from google.cloud.aiplatform import training_jobs
from google.oauth2.credentials import Credentials

IMAGE = "us-docker.pkg.dev/my-project/training/trainer:1"
SKLEARN = "us-docker.pkg.dev/vertex-ai/training/scikit-learn-cpu.0-23:latest"


def call_error(call: Callable[[], object]) -> dict[str, str]:
    """Return type and message of the error that the call raises; both empty: it raises none."""
    try:
        call()
    except Exception as error:  # noqa: BLE001 - the test wants to know which
        return {"error": type(error).__name__, "message": str(error)}
    return {"error": "", "message": ""}


def container() -> dict[str, Any]:
    job = aiplatform.CustomContainerTrainingJob(
        "good", IMAGE, command=["python", "t.py"], labels={"team": "a"}
    )
    model = job.run(
        args=["--n", 5, 0.5],
        replica_count=3,
        machine_type="n1-standard-8",
        accelerator_type="NVIDIA_TESLA_T4",
        accelerator_count=1,
        base_output_dir="gs://bucket/out",
        timeout=3600,
        scheduling_strategy=aiplatform.compat.types.custom_job.Scheduling.Strategy.SPOT,
    )
    again = aiplatform.CustomContainerTrainingJob.get(job.resource_name)
    backing = again.gca_resource.training_task_metadata["backingCustomJob"]
    custom_job = aiplatform.CustomJob.get(backing)
    return {
        "has_model": model is not None,
        "pipeline": job.state.name,
        "pipeline read again": again.state.name,
        "job": custom_job.state.name,
        "has_end_time": again.end_time is not None,
    }


def package() -> dict[str, Any]:
    job = aiplatform.CustomPythonPackageTrainingJob(
        "good", "gs://bucket/p.tar.gz", "trainer.task", SKLEARN
    )
    job.run(args=["--epochs", "6"], base_output_dir="gs://bucket/out")
    return {"pipeline": job.state.name, "has_failed": job.has_failed}


def failed() -> dict[str, str]:
    return call_error(lambda: aiplatform.CustomContainerTrainingJob("bad", IMAGE).run())


def cancelled() -> dict[str, Any]:
    job = aiplatform.CustomContainerTrainingJob("waiting", IMAGE)
    job.submit(replica_count=2)
    submitted = job.state.name
    job.cancel()
    states = {"submitted": submitted, "cancelled": job.state.name, "code": job.error.code}
    job.delete()
    deleted = call_error(lambda: aiplatform.CustomContainerTrainingJob.get(job.resource_name))
    return {**states, "error after deletion": deleted["error"]}


def refused() -> dict[str, str]:
    serving = aiplatform.CustomContainerTrainingJob(
        "model", IMAGE, model_serving_container_image_uri=IMAGE
    )
    return call_error(lambda: serving.run(model_display_name="m"))


def listed() -> list[str]:
    return sorted(job.display_name for job in aiplatform.CustomContainerTrainingJob.list())


training_jobs._JOB_WAIT_TIME = 0.2
aiplatform.init(
    project="my-project",
    location="us-central1",
    staging_bucket="gs://bucket",
    api_endpoint=sys.argv[1],
    api_transport="rest",
    credentials=Credentials(sys.argv[2]),
)
stories = (container, package, failed, cancelled, refused, listed)
print(json.dumps({story.__name__: story() for story in stories}))
