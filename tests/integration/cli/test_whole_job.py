"""The command line and the real gcloud on the local stack: from a source folder to the job's last
log line.
"""

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
from google.rpc import code_pb2

from tests.support.stack import LocalStack, eventually

HEAVY = pytest.mark.heavy(
    fact="commands and SDKs follow and show a whole job",
    quick="`integration/cli` on adapters in memory",
)

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

PROGRAM = """
    import json, os, sys, time
    task = json.loads(os.environ["TF_CONFIG"])["task"]
    started, rate, count = time.monotonic(), *map(int, sys.argv[1].split("x"))
    for step in range(count):
        print("step", step)
        time.sleep(max(0, started + step / rate - time.monotonic()))
    print('{"severity": "NOTICE", "message": "as json", "loss": 0.5}')
    if "--fail" in sys.argv and task["type"] == "worker":
        raise ValueError("bad shape")
    # The chief of a failing job outlasts the workers' restarts on any machine.
    # The service stops it.
    time.sleep(300 if "--fail" in sys.argv else 2)
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "trainer"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "task.py").write_text(textwrap.dedent(PROGRAM))
    return folder


def trainmaster(stack: LocalStack, *arguments: str) -> subprocess.CompletedProcess[str]:
    return stack.run(sys.executable, "-m", "trainmaster.cli.main", *arguments, timeout_s=240)


def submit(
    stack: LocalStack, job_id: str, package: Path, *arguments: str, workers: int = 2
) -> subprocess.CompletedProcess[str]:
    """Submit a job and follow its log.

    `arguments` are the program's; the first is LINES_PER_SECONDxLINES.
    """
    flags = [
        "--region=us-central1",
        "--runtime-version=scikit-learn-1.9",
        "--module-name=trainer.task",
    ]
    flags += [
        f"--package-path={package}",
        "--scale-tier=custom",
        "--master-machine-type=n1-standard-4",
    ]
    flags += [
        "--worker-machine-type=n1-standard-4",
        f"--worker-count={workers}",
        "--stream-logs",
        "--format=json",
    ]
    return trainmaster(stack, "submit", job_id, *flags, "--", *arguments)


def steps(lines: list[tuple[str, str]]) -> dict[str, list[str]]:
    """Return the "step" lines of each task, from pairs of task and message."""
    by_task: dict[str, list[str]] = defaultdict(list)
    for task, message in lines:
        if message.startswith("step "):
            by_task[task].append(message)
    return dict(by_task)


def test_doctor_finds_no_problem_on_the_local_stack(stack: LocalStack) -> None:
    """Earlier tests on the same stack may have left dead letters on purpose: they are dropped
    first.
    """
    dropped = stack.run("trainmaster", "dead-letters", "drop", "--all")
    assert dropped.returncode == 0, dropped.stdout + dropped.stderr
    result = stack.run("trainmaster", "doctor", "--region", "us-central1")
    assert result.returncode == 0, result.stdout + result.stderr
    assert "FIX" not in result.stdout


def test_fresh_stack_knows_prices(stack: LocalStack) -> None:
    listed = json.loads(trainmaster(stack, "prices", "list", "--format", "json").stdout)
    assert {"n1-standard-4", "a2-highgpu-1g"} <= {row["machine"] for row in listed["prices"]}


@HEAVY
def test_prices_are_fetched_and_listed_on_the_local_stack(stack: LocalStack) -> None:
    updated = trainmaster(stack, "prices", "update")
    assert updated.returncode == 0, updated.stderr
    listed = json.loads(trainmaster(stack, "prices", "list", "--format", "json").stdout)
    assert listed, "no machine has a price"


@HEAVY
def test_job_is_followed_and_shown_like_in_gcloud(stack: LocalStack, package: Path) -> None:
    job_id = f"cli_{uuid.uuid4().hex[:8]}"
    result = submit(stack, job_id, package, "200x200", workers=1)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    streamed, _, view = result.stdout.partition("\n{\n")
    lines = [json.loads(line) for line in streamed.splitlines()]
    assert json.loads("{" + view)["state"] == "SUCCEEDED"
    tasks = {"master-replica-0", "worker-replica-0"}
    expected = {task: [f"step {step}" for step in range(200)] for task in tasks}
    assert steps([(line["task"], line["message"]) for line in lines]) == expected
    assert any(line["severity"] == "NOTICE" and line["payload"] == {"loss": 0.5} for line in lines)
    service_lines = [line["message"] for line in lines if line["task"] == "service"]
    assert service_lines[:3] == [
        "Validating job requirements...",
        "Job creation request has been successfully validated.",
        f"Job {job_id} is queued.",
    ]
    assert "Job completed successfully." in service_lines

    gcloud = stack.run(
        "env",
        "CLOUDSDK_ML_ENGINE_POLLING_INTERVAL=1",
        "gcloud",
        "ai-platform",
        "jobs",
        "stream-logs",
        job_id,
        timeout_s=240,
    )
    assert gcloud.returncode == 0, gcloud.stderr
    rows = [line.split("\t") for line in gcloud.stdout.splitlines()]
    task_column, message_column = 2, -1
    lines_of_gcloud = [
        (row[task_column], row[message_column]) for row in rows if len(row) > task_column
    ]
    assert steps(lines_of_gcloud) == expected

    listed = json.loads(trainmaster(stack, "jobs", "list", "--format", "json").stdout)
    assert job_id in [job["jobId"] for job in listed]
    assert re.search(r"primary|master|chief", trainmaster(stack, "jobs", "why", job_id).stdout)


@HEAVY
def test_failed_job_gives_status_1_and_logs_its_traceback(stack: LocalStack, package: Path) -> None:
    job_id = f"cli_{uuid.uuid4().hex[:8]}"
    result = submit(stack, job_id, package, "200x20", "--fail")
    assert result.returncode == 1, result.stdout[-4000:] + result.stderr[-2000:]
    streamed, _, view = result.stdout.partition("\n{\n")
    job = json.loads("{" + view)
    assert job["state"] == "FAILED"
    assert "ValueError: bad shape (trainer/task.py:" in job["errorMessage"]
    assert "console.cloud.google.com" not in job["errorMessage"], "it has no logs of a local stack"
    lines = [json.loads(line) for line in streamed.splitlines()]
    errors = [line["message"] for line in lines if line["severity"] == "ERROR"]
    assert "Traceback (most recent call last):" in errors
    assert "ValueError: bad shape" in errors
    assert "Job failed." in errors


@HEAVY
def test_stream_logs_shows_every_line_of_four_fast_replicas(
    stack: LocalStack, package: Path
) -> None:
    job_id = f"cli_{uuid.uuid4().hex[:8]}"
    result = submit(stack, job_id, package, "1000x8000", workers=3)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    lines = [json.loads(line) for line in result.stdout.partition("\n{\n")[0].splitlines()]
    by_task = steps([(line["task"], line["message"]) for line in lines])
    assert {task: len(messages) for task, messages in by_task.items()} == dict.fromkeys(
        ("master-replica-0", "worker-replica-0", "worker-replica-1", "worker-replica-2"), 8000
    )
    assert all(
        messages == [f"step {step}" for step in range(8000)] for messages in by_task.values()
    )


@HEAVY
def test_uploaded_job_file_with_time_in_its_id_gets_the_upload_time(
    stack: LocalStack, tmp_path: Path
) -> None:
    """The package is no archive, so that the job ends at once."""
    name = f"nightly_{uuid.uuid4().hex[:8]}"
    broken = f"gs://{stack.state.config.bucket}/packages/broken-0.1.tar.gz"
    (tmp_path / "broken").write_bytes(b"no archive")
    assert stack.run("gsutil", "-q", "cp", str(tmp_path / "broken"), broken).returncode == 0
    training = {
        "scaleTier": "CUSTOM",
        "masterType": "n1-standard-4",
        "packageUris": [broken],
        "pythonModule": "trainer.task",
        "region": "us-central1",
        "runtimeVersion": "scikit-learn-1.9",
    }
    (tmp_path / f"{name}.json").write_text(
        json.dumps({"jobId": f"{name}_{{time:%Y%m%d_%H%M%S}}", "trainingInput": training})
    )
    uri = f"gs://{stack.state.config.bucket}/jobs/{name}.json"
    assert stack.run("gsutil", "-q", "cp", str(tmp_path / f"{name}.json"), uri).returncode == 0
    job_ids: list[str] = []

    def is_listed() -> bool:
        listed = json.loads(trainmaster(stack, "jobs", "list", "--format", "json").stdout)
        job_ids.extend(job["jobId"] for job in listed if job["jobId"].startswith(name))
        return bool(job_ids)

    eventually(is_listed)
    stored = stack.run("gsutil", "ls", "-L", uri).stdout
    created = re.search(r"Creation time:\s+\w+, (.+) GMT", stored)
    assert created is not None, stored
    at = datetime.strptime(created[1], "%d %b %Y %H:%M:%S").replace(tzinfo=UTC)
    assert job_ids[0] == f"{name}_{at:%Y%m%d_%H%M%S}"
    assert trainmaster(stack, "jobs", "wait", job_ids[0]).returncode == 1
    assert f"was submitted by the upload of {uri}" in trainmaster(stack, "why", job_ids[0]).stdout


@HEAVY
def test_vertex_sdk_packages_a_script_and_waits_for_its_job(
    stack: LocalStack, tmp_path: Path
) -> None:
    (tmp_path / "task.py").write_text(
        "import os, sys; print('TRAINED', sys.argv[1:], os.environ['AIP_MODEL_DIR'])"
    )
    config = stack.state.config
    root = Path(__file__).parents[3]
    result = stack.run(
        str(root / ".images" / "aiplatform" / "bin" / "python"),
        str(root / "tests" / "integration" / "api" / "programs" / "vertex_sdk_script.py"),
        f"http://{stack.state.endpoints.api}",
        stack.token,
        config.project,
        config.bucket,
        str(tmp_path / "task.py"),
        timeout_s=240,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    _, number, state = result.stdout.splitlines()[-1].split()
    assert state == "JOB_STATE_SUCCEEDED"
    description = trainmaster(stack, "jobs", "describe", f"custom_{number}").stdout
    assert "submitted: through the API, by owner@example.com" in description
    log = trainmaster(stack, "logs", f"custom_{number}").stdout
    assert f"TRAINED ['--epochs', '5'] gs://{config.bucket}/out/model/" in log


@HEAVY
def test_vertex_sdk_runs_training_pipelines_to_their_end(stack: LocalStack, tmp_path: Path) -> None:
    (tmp_path / "task.py").write_text(
        "import os, sys; print('TRAINED', sys.argv[1:], os.environ['AIP_MODEL_DIR'])"
    )
    config = stack.state.config
    root = Path(__file__).parents[3]
    result = stack.run(
        str(root / ".images" / "aiplatform" / "bin" / "python"),
        str(root / "tests" / "integration" / "api" / "programs" / "vertex_pipelines.py"),
        f"http://{stack.state.endpoints.api}",
        stack.token,
        config.project,
        config.bucket,
        str(tmp_path / "task.py"),
        timeout_s=380,
    )
    assert result.returncode == 0, result.stdout[-2000:] + result.stderr[-4000:]
    results = json.loads(result.stdout.splitlines()[-1])
    for name, epochs in (("script", 5), ("package", 6)):
        number, state = results[name]
        assert state == "PIPELINE_STATE_SUCCEEDED"
        log = trainmaster(stack, "logs", f"custom_{number}").stdout
        assert f"TRAINED ['--epochs', '{epochs}'] gs://{config.bucket}/out/model/" in log
    _, state, error_code = results["container"]
    assert (state, error_code) == ("PIPELINE_STATE_CANCELLED", str(code_pb2.CANCELLED))
    assert {"script", "package"} <= set(results["listed"])
    assert "container" not in results["listed"], "the program has deleted it"
