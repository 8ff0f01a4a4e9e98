"""The command line and the real gcloud on the local stack: from a folder of sources to a job's last line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
import uuid
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest

from emulators.services import iam
from tests.support.stack import LocalStack, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

PROGRAM = """
    import json, os, sys, time
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    began, rate, count = time.monotonic(), *map(int, sys.argv[1].split("x"))
    for step in range(count):
        print("step", step)
        time.sleep(max(0, began + step / rate - time.monotonic()))
    print('{"severity": "NOTICE", "message": "as json", "loss": 0.5}')
    if "--fail" in sys.argv and task["type"] == "worker":
        raise ValueError("bad shape")
    time.sleep(2)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "trainer"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "task.py").write_text(textwrap.dedent(PROGRAM))
    return folder


def trainmaster(stack: LocalStack, *arguments: str) -> subprocess.CompletedProcess[str]:
    return stack.run(sys.executable, "-m", "cli.main", *arguments, timeout_s=240)


def submit(
    stack: LocalStack, job_id: str, package: Path, *arguments: str, workers: int = 2
) -> subprocess.CompletedProcess[str]:
    """`arguments`: of the program; the first is RATExCOUNT, of lines."""
    flags = ["--region=us-central1", "--runtime-version=scikit-learn-1.9", "--module-name=trainer.task"]
    flags += [f"--package-path={package}", "--scale-tier=custom", "--master-machine-type=n1-standard-4"]
    flags += ["--worker-machine-type=n1-standard-4", f"--worker-count={workers}", "--stream-logs", "--format=json"]
    return trainmaster(stack, "submit", job_id, *flags, "--", *arguments)


def steps(lines: list[tuple[str, str]]) -> dict[str, list[str]]:
    """What each task printed of its own program, of (task, message)."""
    found: dict[str, list[str]] = defaultdict(list)
    for task, message in lines:
        if message.startswith("step "):
            found[task].append(message)
    return dict(found)


def test_a_job_is_submitted_followed_and_shown_by_us_and_by_gcloud(stack: LocalStack, package: Path) -> None:
    job_id = f"cli_{uuid.uuid4().hex[:8]}"
    done = submit(stack, job_id, package, "200x200")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    streamed, _, shown = done.stdout.partition("\n{\n")
    lines = [json.loads(line) for line in streamed.splitlines()]
    assert json.loads("{" + shown)["state"] == "SUCCEEDED"
    tasks = {"master-replica-0", "worker-replica-0", "worker-replica-1"}
    expected = {task: [f"step {step}" for step in range(200)] for task in tasks}
    assert steps([(line["task"], line["message"]) for line in lines]) == expected
    assert any(line["severity"] == "NOTICE" and line["payload"] == {"loss": 0.5} for line in lines)
    said = [line["message"] for line in lines if line["task"] == "service"]
    assert said[:3] == [
        "Validating job requirements...",
        "Job creation request has been successfully validated.",
        f"Job {job_id} is queued.",
    ]
    assert "Job completed successfully." in said

    gcloud = stack.run(
        "env", "CLOUDSDK_ML_ENGINE_POLLING_INTERVAL=1", "gcloud", "ai-platform", "jobs", "stream-logs", job_id,
        timeout_s=240,
    )  # fmt: skip
    assert gcloud.returncode == 0, gcloud.stderr
    rows = [line.split("\t") for line in gcloud.stdout.splitlines()]
    assert steps([(row[2], row[-1]) for row in rows if len(row) > 2]) == expected

    listed = json.loads(trainmaster(stack, "jobs", "list", "--format", "json").stdout)
    assert job_id in [job["jobId"] for job in listed]
    assert re.search(r"primary|master|chief", trainmaster(stack, "jobs", "why", job_id).stdout)


def test_a_job_that_fails_ends_the_command_with_1_and_its_traceback_is_in_the_log(
    stack: LocalStack, package: Path
) -> None:
    job_id = f"cli_{uuid.uuid4().hex[:8]}"
    done = submit(stack, job_id, package, "200x20", "--fail")
    assert done.returncode == 1, done.stdout[-4000:] + done.stderr[-2000:]
    streamed, _, shown = done.stdout.partition("\n{\n")
    job = json.loads("{" + shown)
    assert job["state"] == "FAILED"
    assert "check the logs: https://console.cloud.google.com/logs/viewer?project=" in job["errorMessage"]
    lines = [json.loads(line) for line in streamed.splitlines()]
    errors = [line["message"] for line in lines if line["severity"] == "ERROR"]
    assert "Traceback (most recent call last):" in errors
    assert "ValueError: bad shape" in errors
    assert "Job failed." in errors


def test_the_doctor_finds_nothing_wrong_with_it(stack: LocalStack) -> None:
    done = stack.run("trainmaster", "doctor", "--region", "us-central1")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FIX" not in done.stdout


@pytest.mark.heavy
def test_four_replicas_of_a_thousand_lines_a_second_each_are_followed_line_by_line(
    stack: LocalStack, package: Path
) -> None:
    job_id = f"cli_{uuid.uuid4().hex[:8]}"
    done = submit(stack, job_id, package, "1000x8000", workers=3)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    lines = [json.loads(line) for line in done.stdout.partition("\n{\n")[0].splitlines()]
    found = steps([(line["task"], line["message"]) for line in lines])
    assert {task: len(each) for task, each in found.items()} == dict.fromkeys(
        ("master-replica-0", "worker-replica-0", "worker-replica-1", "worker-replica-2"), 8000
    )
    assert all(each == [f"step {step}" for step in range(8000)] for each in found.values())


@pytest.mark.heavy
def test_a_file_whose_job_id_holds_a_time_is_a_job_of_when_it_was_stored(stack: LocalStack, tmp_path: Path) -> None:
    """With Cloud Storage's own notification; the package is not there, and the job ends at once."""
    name = f"nightly_{uuid.uuid4().hex[:8]}"
    training = {
        "scaleTier": "CUSTOM",
        "masterType": "n1-standard-4",
        "packageUris": ["gs://trainmaster-local/packages/not-there-0.1.tar.gz"],
        "pythonModule": "trainer.task",
        "region": "us-central1",
        "runtimeVersion": "scikit-learn-1.9",
    }
    (tmp_path / f"{name}.json").write_text(
        json.dumps({"jobId": f"{name}_{{time:%Y%m%d_%H%M%S}}", "trainingInput": training})
    )
    where = f"gs://{stack.state.config.bucket}/jobs/{name}.json"
    assert stack.run("gsutil", "-q", "cp", str(tmp_path / f"{name}.json"), where).returncode == 0
    found: list[str] = []

    def is_there() -> bool:
        listed = json.loads(trainmaster(stack, "jobs", "list", "--format", "json").stdout)
        found.extend(job["jobId"] for job in listed if job["jobId"].startswith(name))
        return bool(found)

    eventually(is_there)
    stored = stack.run("gsutil", "ls", "-L", where).stdout
    created = re.search(r"Creation time:\s+\w+, (.+) GMT", stored)
    assert created is not None, stored
    at = datetime.strptime(created[1], "%d %b %Y %H:%M:%S").replace(tzinfo=UTC)
    assert found[0] == f"{name}_{at:%Y%m%d_%H%M%S}"
    assert trainmaster(stack, "jobs", "wait", found[0]).returncode == 1
    assert f"was submitted by the upload of {where}" in trainmaster(stack, "why", found[0]).stdout


@pytest.mark.heavy
def test_vertex_ais_own_sdk_packages_a_script_and_waits_for_it(stack: LocalStack, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text("import os, sys; print('TRAINED', sys.argv[1:], os.environ['AIP_MODEL_DIR'])")
    config = stack.state.config
    root = Path(__file__).parents[3]
    done = stack.run(
        str(root / ".images" / "aiplatform" / "bin" / "python"),
        str(root / "tests" / "api" / "programs" / "vertex_sdk_script.py"),
        f"http://{stack.state.endpoints.api}", iam.OWNER, config.project, config.bucket, str(tmp_path / "task.py"),
        timeout_s=240,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    _, number, state = done.stdout.splitlines()[-1].split()
    assert state == "JOB_STATE_SUCCEEDED"
    shown = trainmaster(stack, "jobs", "describe", f"custom_{number}").stdout
    assert "submitted: through the API, by owner@example.com" in shown
    said = trainmaster(stack, "logs", f"custom_{number}").stdout
    assert f"TRAINED ['--epochs', '5'] gs://{config.bucket}/out/model/" in said
