"""Programs of Vertex AI that read and write below /gcs, byte-identical."""

from __future__ import annotations

import textwrap

import pytest

from tests.e2e.conftest import Lab
from tests.integration.agent.support.packages import wheel_of
from trainmaster_emulators.machines.gcsfuse.server import find_obstacle

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

TASK = """
import argparse
import os

parser = argparse.ArgumentParser()
parser.add_argument("--data")
args, _ = parser.parse_known_args()
rows = open(args.data).read().split()
folder = os.environ["AIP_MODEL_DIR"].replace("gs://", "/gcs/", 1)
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, "model.txt"), "w") as out:
    out.write("trained on %d rows\\n" % len(rows))
"""


@pytest.mark.heavy(
    fact="a program reads and saves below /gcs",
    quick="`integration/agent/test_gcs_mount.py`, `unit/flows/test_gcs_folder.py`",
)
@pytest.mark.skipif(bool(find_obstacle()), reason=find_obstacle())
def test_custom_job_reads_and_saves_below_gcs(lab: Lab) -> None:
    wheel = wheel_of(
        "gcsfuse_probe", {"probe/__init__.py": "", "probe/task.py": textwrap.dedent(TASK)}
    )
    uri = f"gs://{lab.bucket}/packages/probe/gcsfuse_probe-0.1-py3-none-any.whl"
    lab.objects.write(uri, wheel, content_type="application/octet-stream")
    lab.objects.write(f"gs://{lab.bucket}/data/rows.csv", b"1,2\n3,4\n", content_type="text/csv")
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "pythonPackageSpec": {
            "executorImageUri": "us-docker.pkg.dev/vertex-ai/training/scikit-learn-cpu.0-23:latest",
            "packageUris": [uri],
            "pythonModule": "probe.task",
            "args": [f"--data=/gcs/{lab.bucket}/data/rows.csv"],
        },
    }
    output = f"gs://{lab.bucket}/gcs_folder"
    job = {"workerPoolSpecs": [pool], "baseOutputDirectory": {"outputUriPrefix": output}}
    job_id = lab.upload(
        {"displayName": "gcs_folder", "jobSpec": job, "trainmaster": {"region": "us-central1"}},
        "gcs_folder",
    )
    lab.wait_for_success(job_id, within_s=120)
    assert lab.objects.read(f"{output}/model/model.txt", max_bytes=100) == b"trained on 2 rows\n"
