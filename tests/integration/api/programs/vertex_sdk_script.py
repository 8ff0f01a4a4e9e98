"""A program that submits a script as a custom job with Vertex AI's SDK, and prints the job's name
and state.

python vertex_sdk_script.py ENDPOINT TOKEN PROJECT BUCKET SCRIPT
"""

import sys

from google.cloud import aiplatform
from google.oauth2.credentials import Credentials

_, endpoint, token, project, bucket, script = sys.argv
aiplatform.init(
    project=project,
    location="us-central1",
    staging_bucket=f"gs://{bucket}",
    api_endpoint=endpoint,
    api_transport="rest",
    credentials=Credentials(token),
)
job = aiplatform.CustomJob.from_local_script(
    "script",
    script,
    "us-docker.pkg.dev/vertex-ai/training/scikit-learn-cpu.0-23:latest",
    args=["--epochs", "5"],
    base_output_dir=f"gs://{bucket}/out",
)
job.run(sync=True)
print("ENDED", job.name, job.state.name)
