"""The command line and the real gcloud on the local stack: from a folder of sources to a job's last line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import textwrap
import uuid
from collections import defaultdict
from pathlib import Path

import pytest

from tests.support.stack import LocalStack

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
