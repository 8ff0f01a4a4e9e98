"""Whole jobs whose replicas are containers, on the local stack with a real engine."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.e2e.conftest import Lab, lab_on
from tests.integration.containers.engine import Engine
from tests.support.stack import local_stack
from trainmaster.core.model.job import JobState
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name
from trainmaster_emulators.process.stack_config import StackConfig

pytestmark = [
    pytest.mark.heavy(
        fact="jobs of containers run, fail and restart as a whole",
        quick=(
            "`integration/agent/test_container_program.py` and"
            " `integration/agent/test_container_engine.py` with a command in place of the engine"
        ),
    ),
    pytest.mark.e2e,
    pytest.mark.timeout(600),
]

MASTER = ReplicaId(TaskType.MASTER, 0)
WORKER_0 = ReplicaId(TaskType.WORKER, 0)
WORKER_1 = ReplicaId(TaskType.WORKER, 1)
COMMAND = ["python3", "/app/task.py", "--greeting"]
JOB_S = 180


@pytest.fixture(scope="module")
def image(engine: Engine) -> str:
    """A user's training image in a registry.

    Its program (`images/program/task.py`) prints `ROLE INDEX says GREETING`, from its argument
    --greeting, and meets its peers; its other arguments make it fail or run for ever.
    """
    return engine.publish(engine.program(), "trainer:1")


def submit(
    lab: Lab, image: str, workers: int = 0, *, worker: object = None, **master: object
) -> str:
    """Submit a job. `master` and `worker`: fields of their ReplicaConfig besides the image."""
    spec: dict[str, object] = {
        "scaleTier": "CUSTOM",
        "masterType": "n1-standard-4",
        "masterConfig": {"imageUri": image, **master},
        "region": "us-central1",
    }
    if workers:
        spec |= {
            "workerType": "n1-standard-4",
            "workerCount": workers,
            "workerConfig": worker or {},
        }
    return lab.upload({"trainingInput": spec}, "containers")


def console(lab: Lab, job_id: str, replica_id: ReplicaId) -> str:
    """Return the serial output of all VMs that the replica has had."""
    logs = (lab.stack.state_dir / "compute" / "serial").glob(f"{vm_name(job_id, replica_id)}-*.log")
    return "".join(log.read_text(errors="replace") for log in sorted(logs))


def containers(engine: Engine, job_id: str, replica_id: ReplicaId) -> list[str]:
    return engine.containers(f"label=trainmaster-vm={vm_name(job_id, replica_id)}")


def test_master_and_two_workers_connect_through_tf_config(
    lab: Lab, engine: Engine, image: str
) -> None:
    job_id = submit(lab, image, workers=2)
    lab.wait_for_success(job_id, JOB_S)
    output = console(lab, job_id, MASTER)
    assert "master 0 says 'as the image says', job dir ''" in output
    assert "greeted by ['worker 0', 'worker 1']" in output
    assert "worker 1 says 'as the image says'" in console(lab, job_id, WORKER_1)
    assert not engine.containers()


def test_command_and_arguments_replace_the_images_as_documented(lab: Lab, image: str) -> None:
    both = {"containerCommand": COMMAND, "containerArgs": ["both; $(touch /x) 'quoted'"]}
    job_id = submit(lab, image, workers=1, worker=both, containerArgs=["--greeting", "arguments"])
    alone = submit(lab, image, containerCommand=[*COMMAND, "a command"])
    lab.wait_for_success(job_id, JOB_S)
    assert "master 0 says 'arguments'" in console(lab, job_id, MASTER)
    assert """worker 0 says "both; $(touch /x) 'quoted'\"""" in console(lab, job_id, WORKER_0)
    lab.wait_for_success(alone, JOB_S)
    assert "master 0 says 'a command'" in console(lab, alone, MASTER)


def test_failed_container_restarts_in_the_same_vm(lab: Lab, image: str) -> None:
    marker = f"gs://{lab.bucket}/has-failed-{time.time_ns()}"
    job_id = submit(lab, image, containerArgs=["--fail-once", marker])
    state = lab.wait_for_success(job_id, JOB_S)
    (master,) = state.replicas
    assert (master.incarnation, master.restarts_used, master.vm_generation) == (2, 1, 1)


def test_permanent_exit_status_fails_the_job(lab: Lab, image: str) -> None:
    job_id = submit(lab, image, containerArgs=["--exit", "2"])
    message = lab.wait(job_id, JobState.FAILED, JOB_S).job.error_message
    assert message is not None
    assert "2" in message


def test_command_missing_from_the_image_fails_the_job(lab: Lab, image: str) -> None:
    job_id = submit(lab, image, containerCommand=["trane", "--fast"])
    message = lab.wait(job_id, JobState.FAILED, JOB_S).job.error_message
    assert message is not None
    assert "trane" in message


def test_container_out_of_memory_fails_the_job_with_that_reason(lab: Lab, image: str) -> None:
    job_id = submit(lab, image, containerArgs=["--eat"])
    message = lab.wait(job_id, JobState.FAILED, JOB_S).job.error_message
    assert message is not None
    assert "ran out-of-memory" in message


def test_missing_image_fails_the_job_with_the_registrys_message(lab: Lab, engine: Engine) -> None:
    job_id = submit(lab, f"{engine.registry}/missing/trainer:9")
    message = lab.wait(job_id, JobState.FAILED, JOB_S).job.error_message
    assert message is not None
    assert f"{engine.registry}/missing/trainer:9" in message
    assert "manifest unknown" in message


def test_engine_that_does_not_answer_fails_the_job_with_its_message(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/missing.sock")
    with local_stack(tmp_path / "state", StackConfig()) as stack, lab_on(stack, tmp_path) as lab:
        job_id = submit(lab, "registry.example/trainer:1")
        message = lab.wait(job_id, JobState.FAILED, JOB_S).job.error_message
    assert message is not None
    assert "cannot pull registry.example/trainer:1: Cannot connect to the Docker daemon" in message


def test_killed_container_restarts_and_a_cancelled_job_leaves_none(
    lab: Lab, engine: Engine, image: str
) -> None:
    job_id = submit(
        lab,
        image,
        workers=1,
        worker={"containerArgs": ["--for-ever"]},
        containerArgs=["--for-ever"],
    )
    lab.wait(job_id, JobState.RUNNING, JOB_S)
    lab.until(lambda: "worker 0 says" in console(lab, job_id, WORKER_0), JOB_S)
    lab.faults.kill_program(vm_name(job_id, WORKER_0))
    lab.until(lambda: lab.replica(job_id, WORKER_0).incarnation == 2, JOB_S)
    lab.until(lambda: console(lab, job_id, WORKER_0).count("worker 0 says") == 2, JOB_S)
    assert len(containers(engine, job_id, WORKER_0)) == 1
    lab.cancel(job_id)
    assert not engine.containers()


def test_maintenance_moves_the_container_to_another_vm(
    lab: Lab, engine: Engine, image: str
) -> None:
    worker = {
        "containerArgs": ["--for-ever"],
        "acceleratorConfig": {"type": "NVIDIA_TESLA_T4", "count": "1"},
    }
    # A VM with GPUs cannot migrate live.
    job_id = submit(lab, image, workers=1, worker=worker, containerArgs=["--for-ever"])
    lab.wait(job_id, JobState.RUNNING, JOB_S)
    lab.until(lambda: "worker 0 says" in console(lab, job_id, WORKER_0), JOB_S)
    (before,) = containers(engine, job_id, WORKER_0)
    lab.faults.maintenance(vm_name(job_id, WORKER_0), notice_s=5)
    lab.until(lambda: lab.replica(job_id, WORKER_0).vm_generation == 2, JOB_S)
    lab.until(lambda: lab.replica(job_id, WORKER_0).state is ReplicaState.RUNNING, JOB_S)
    lab.until(lambda: containers(engine, job_id, WORKER_0) not in ([], [before]), JOB_S)
    assert len(containers(engine, job_id, WORKER_0)) == 1
    assert "asked to end" in console(lab, job_id, WORKER_0)
    lab.cancel(job_id)
    assert not engine.containers()
