"""A program that runs training pipelines with Vertex AI's SDK. The last line of its output has the
results as JSON.

python vertex_pipelines.py ENDPOINT TOKEN PROJECT BUCKET SCRIPT
"""

import json
import sys
from typing import Any

from google.cloud import aiplatform
from google.cloud.aiplatform import training_jobs
from google.oauth2.credentials import Credentials

_, endpoint, token, project, bucket, script = sys.argv
SKLEARN = "us-docker.pkg.dev/vertex-ai/training/scikit-learn-cpu.0-23:latest"
training_jobs._JOB_WAIT_TIME = 1


def describe(job: Any) -> list[str]:
    return [job.resource_name.rpartition("/")[2], job.state.name]


def from_script() -> list[str]:
    job = aiplatform.CustomTrainingJob("script", script, SKLEARN)
    job.run(args=["--epochs", 5], base_output_dir=f"gs://{bucket}/out")
    return describe(job)


def from_package(package: str) -> list[str]:
    job = aiplatform.CustomPythonPackageTrainingJob(
        "package", package, "aiplatform_custom_trainer_script.task", SKLEARN
    )
    job.run(args=["--epochs", 6], replica_count=2, base_output_dir=f"gs://{bucket}/out")
    return describe(job)


def from_container() -> list[str]:
    """Submit a container, and cancel it: it needs a container engine to run."""
    job = aiplatform.CustomContainerTrainingJob(
        "container", "us-docker.pkg.dev/my-project/training/trainer:1"
    )
    job.submit(args=["--epochs", 7])
    again = aiplatform.CustomContainerTrainingJob.get(job.resource_name)
    again.cancel()
    result = [*describe(job), str(job.error.code)]
    job.delete()
    return result


aiplatform.init(
    project=project,
    location="us-central1",
    staging_bucket=f"gs://{bucket}",
    api_endpoint=endpoint,
    api_transport="rest",
    credentials=Credentials(token),
)
results = {"script": from_script()}
inputs = aiplatform.CustomTrainingJob.list(filter='display_name="script"')[
    0
].gca_resource.training_task_inputs
package_uris = inputs["worker_pool_specs"][0]["python_package_spec"]["package_uris"]
results["package"] = from_package(package_uris[0])
results["container"] = from_container()
results["listed"] = sorted(job.display_name for job in aiplatform.CustomTrainingJob.list())
print(json.dumps(results))
