"""The unmodified gcloud ai-platform and gcloud ai with another endpoint: stage, submit, watch,
cancel.
"""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path

import pytest
import yaml

from tests.e2e.conftest import SCRIPTED, Lab
from trainmaster_emulators.services import iam

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.slow,
    pytest.mark.heavy(
        fact="gcloud submits, follows, changes and cancels whole jobs",
        quick="`integration/api/test_gcloud.py`, `integration/logging/test_gcloud.py`",
    ),
]

JOBS = ("gcloud", "ai-platform", "jobs")
SUBMIT = (*JOBS, "submit", "training")
CUSTOM_JOBS = ("gcloud", "ai", "custom-jobs")


@pytest.fixture
def trainer(tmp_path: Path) -> Path:
    """Return a copy of the scripted trainer's sources in which gcloud may build a package."""
    copied = tmp_path / "source"
    shutil.copytree(
        SCRIPTED, copied, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
    )
    return copied / "trainer"


def flags(lab: Lab, trainer: Path, *arguments: str) -> tuple[str, ...]:
    return (
        f"--package-path={trainer}",
        "--module-name=trainer.task",
        f"--staging-bucket=gs://{lab.bucket}",
        f"--job-dir=gs://{lab.bucket}/gcloud",
        "--region=us-central1",
        "--runtime-version=scikit-learn-1.9",
        "--scale-tier=custom",
        "--master-machine-type=n1-standard-4",
        "--worker-machine-type=n1-standard-4",
        "--worker-count=1",
        "--",
        "--step-seconds=0.1",
        *arguments,
    )


def a_name() -> str:
    return f"gcloud_{uuid.uuid4().hex[:8]}"


def test_gcloud_submits_from_sources_and_streams_logs_to_the_end(
    lab: Lab, trainer: Path, tmp_path: Path
) -> None:
    job_id = a_name()
    submitted = lab.stack.run(
        *SUBMIT, job_id, *flags(lab, trainer, "--steps=5"), home=tmp_path, timeout_s=120
    )
    assert submitted.returncode == 0, submitted.stderr
    assert f"Job [{job_id}] submitted successfully." in submitted.stderr
    lab.wait_for_success(job_id, within_s=120)
    described = lab.stack.run(*JOBS, "describe", job_id, home=tmp_path)
    shown = yaml.safe_load(described.stdout)
    assert (shown["state"], shown["trainingInput"]["workerCount"]) == ("SUCCEEDED", "1")
    assert shown["createTime"] <= shown["startTime"] <= shown["endTime"]
    assert "consumedMLUnits" in shown["trainingOutput"]
    (package,) = shown["trainingInput"]["packageUris"]
    assert package.startswith(f"gs://{lab.bucket}/{job_id}/"), (
        "the location that gcloud uses by default"
    )
    streamed = lab.stack.run(
        *JOBS, "stream-logs", job_id, "--polling-interval=1", home=tmp_path, timeout_s=120
    )
    assert streamed.returncode == 0, streamed.stderr
    for line in (f"Job {job_id} is queued.", "step 5/5", "Job completed successfully."):
        assert line in streamed.stdout
    again = lab.stack.run(
        *SUBMIT, job_id, *flags(lab, trainer, "--steps=5"), home=tmp_path, timeout_s=120
    )
    assert (again.returncode, "A job with this id already exists." in again.stderr) == (1, True)


def test_gcloud_submits_a_built_in_algorithm_by_its_former_image(lab: Lab, tmp_path: Path) -> None:
    job_id, data = a_name(), f"gs://{lab.bucket}/gcloud/numbers.csv"
    rows = "".join(f"{row % 2},{row % 7}.5,{row}.25\n" for row in range(60))
    lab.objects.write(data, rows.encode(), content_type="text/csv")
    image, arguments = (
        "gcr.io/cloud-ml-algos/{}:latest",
        ("--preprocess", f"--training_data_path={data}"),
    )
    common = (
        "--region=us-central1",
        f"--job-dir=gs://{lab.bucket}/gcloud/{job_id}",
        "--scale-tier=basic",
    )
    refused = lab.stack.run(
        *SUBMIT,
        a_name(),
        *common,
        f"--master-image-uri={image.format('bert')}",
        "--",
        *arguments,
        home=tmp_path,
    )
    assert (refused.returncode, "TensorFlow Model Garden" in refused.stderr) == (1, True)
    submitted = lab.stack.run(
        *SUBMIT,
        job_id,
        *common,
        f"--master-image-uri={image.format('boosted_trees')}",
        "--",
        *arguments,
        "--objective=binary:logistic",
        home=tmp_path,
    )
    assert submitted.returncode == 0, submitted.stderr
    lab.wait_for_success(job_id, within_s=120)
    shown = yaml.safe_load(lab.stack.run(*JOBS, "describe", job_id, home=tmp_path).stdout)
    assert shown["trainingOutput"]["isBuiltInAlgorithmJob"] is True
    assert shown["trainingOutput"]["builtInAlgorithmOutput"]["modelPath"].endswith(
        f"{job_id}/model/"
    )


def test_gcloud_updates_labels_and_cancels_a_running_job(
    lab: Lab, trainer: Path, tmp_path: Path
) -> None:
    job_id = a_name()
    submitted = lab.stack.run(
        *SUBMIT, job_id, *flags(lab, trainer, "--steps=100000"), home=tmp_path, timeout_s=120
    )
    assert submitted.returncode == 0, submitted.stderr
    lab.wait(job_id, "RUNNING", within_s=120)
    assert (
        lab.stack.run(*JOBS, "update", job_id, "--update-labels=a=b", home=tmp_path).returncode == 0
    )
    listed = lab.stack.run(
        *JOBS, "list", f"--filter=labels.a=b AND jobId={job_id}", home=tmp_path
    ).stdout
    assert [line.split()[:2] for line in listed.splitlines()[1:]] == [[job_id, "RUNNING"]]
    cancelled = lab.stack.run(*JOBS, "cancel", job_id, home=tmp_path)
    assert (cancelled.returncode, cancelled.stdout, cancelled.stderr) == (0, "", "")
    assert lab.state(job_id).job.state == "CANCELLED"
    lab.until(lambda: not lab.fleet.list_vms(job_id), 60)


def test_gcloud_runs_a_vertex_custom_job_and_streams_its_logs(lab: Lab, tmp_path: Path) -> None:
    program = {
        "executorImageUri": "us-docker.pkg.dev/vertex-ai/training/sklearn-cpu.1-6:latest",
        "packageUris": [lab.wheel()],
        "pythonModule": "trainer.task",
        "args": ["--steps=3"],
    }
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "pythonPackageSpec": program,
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({"workerPoolSpecs": [pool, pool]}))
    region = "--region=us-central1"
    name = a_name()
    config = f"--config={tmp_path / 'config.yaml'}"
    created = lab.stack.run(
        *CUSTOM_JOBS, "create", region, f"--display-name={name}", config, home=tmp_path
    )
    assert created.returncode == 0, created.stderr
    found = lab.stack.run(
        *CUSTOM_JOBS,
        "list",
        region,
        f"--filter=displayName={name}",
        "--format=value(name)",
        home=tmp_path,
    )
    number = found.stdout.strip().rpartition("/")[2]
    lab.wait_for_success(f"custom_{number}", within_s=120)
    shown = yaml.safe_load(
        lab.stack.run(*CUSTOM_JOBS, "describe", number, region, home=tmp_path).stdout
    )
    assert (shown["state"], shown["displayName"]) == ("JOB_STATE_SUCCEEDED", name)
    streamed = lab.stack.run(
        *CUSTOM_JOBS,
        "stream-logs",
        number,
        region,
        "--polling-interval=1",
        home=tmp_path,
        timeout_s=120,
    )
    assert streamed.returncode == 0, streamed.stderr
    assert "step 3/3" in streamed.stdout, "the log is found by the job's number"


def test_gcloud_with_an_unknown_token_is_rejected(lab: Lab, tmp_path: Path) -> None:
    """The token is checked by the emulator of Cloud Resource Manager."""
    (tmp_path / "token").write_text("ya29.an-expired-access-token\n")
    refused = lab.stack.run(
        *JOBS, "list", f"--access-token-file={tmp_path / 'token'}", home=tmp_path
    )
    assert refused.returncode == 1
    assert "UNAUTHENTICATED" in refused.stderr
    viewer = lab.stack.token.replace(iam.OWNER, iam.VIEWER)
    (tmp_path / "token").write_text(viewer + "\n")
    assert (
        lab.stack.run(
            *JOBS, "list", f"--access-token-file={tmp_path / 'token'}", home=tmp_path
        ).returncode
        == 0
    )
