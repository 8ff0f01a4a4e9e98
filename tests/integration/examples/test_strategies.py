"""The trainers of the distribution strategies as local processes: one replica, or several on the
loopback address.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.jobs import WORKER_0, exited
from trainmaster.agent.program.tracebacks import parse_traceback
from trainmaster.core.events import ProgramError
from trainmaster.core.rules.evidence import reports_lost_peer

HEAVY = pytest.mark.heavy(
    fact="examples of strategies resume, and report errors of their libraries",
    quick=(
        "`e2e/jobs/test_local_run.py` with scikit-learn, `integration/agent/test_program.py`,"
        " `unit/agent/program/test_conventions.py`"
    ),
)

pytestmark = [HEAVY, pytest.mark.timeout(300)]

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 100


@dataclass(frozen=True)
class Trainer:
    """A module of an example's package, and the runtime image that its job uses."""

    image: str
    example: str
    module: str

    def start(self, *arguments: str, **variables: str) -> subprocess.Popen[str]:
        python = ROOT / ".images" / self.image / "bin" / "python"
        assert python.exists(), (
            f"there is no runtime image {self.image}: build it with `make images`"
        )
        environment = {
            **os.environ,
            "PYTHONDONTWRITEBYTECODE": "1",
            "CLOUD_ML_JOB_ID": "example_1",
            **variables,
        }
        command = [str(python), "-m", self.module, *arguments]
        folder, piped = ROOT / "examples" / self.example, subprocess.PIPE
        return subprocess.Popen(
            command, cwd=folder, env=environment, stdout=piped, stderr=piped, text=True
        )

    def run(self, *arguments: str, **variables: str) -> tuple[int, str, str]:
        """Return its exit status, standard output and standard error."""
        process = self.start(*arguments, **variables)
        output, errors = process.communicate(timeout=PATIENCE_S)
        return process.returncode, output, errors


def one_replica() -> str:
    cluster = {"chief": [f"127.0.0.1:{free_port()}"]}
    return json.dumps(
        {"cluster": cluster, "task": {"type": "chief", "index": 0}, "environment": "cloud"}
    )


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as held:
        port: int = held.getsockname()[1]
        return port


def metrics(job_dir: Path) -> dict[str, object]:
    content: dict[str, object] = json.loads((job_dir / "metrics.json").read_text())
    return content


ONE_VM = Trainer("tensorflow", "tf_strategies", "trainer.one_vm")


@pytest.mark.parametrize(
    ("strategy", "replicas"),
    [
        pytest.param("mirrored", 2, marks=pytest.mark.slow),
        pytest.param("central_storage", 2, marks=HEAVY),
        pytest.param("one_device", 1, marks=HEAVY),
    ],
)
def test_one_vm_strategy_after_a_failure_resumes_from_its_last_epoch(
    tmp_path: Path, strategy: str, replicas: int
) -> None:
    arguments = ["--strategy", strategy, "--cpu-devices", "2", "--job-dir", str(tmp_path)]

    # A file with the name of the model's directory makes the program fail after its last epoch.
    (tmp_path / "model").write_text("in the way")
    status, output, _ = ONE_VM.run(*arguments, "--epochs", "3", TF_CONFIG=one_replica())
    assert status == 1
    assert "epoch 3/3 " in output
    (tmp_path / "model").unlink()

    status, output, errors = ONE_VM.run(*arguments, "--epochs", "6", TF_CONFIG=one_replica())
    assert status == 0, errors
    assert "resuming from epoch 4\nepoch 4/6 " in output
    assert metrics(tmp_path)["replicas"] == replicas
    assert float(str(metrics(tmp_path)["accuracy"])) > 0.94
    assert (tmp_path / "model" / "saved_model.pb").is_file()


@HEAVY
@pytest.mark.parametrize("keras", ["2", "3"])  # TPU VMs have Keras 3
def test_tpu_trainer_without_a_tpu_exits_or_trains_on_any_device(
    tmp_path: Path, keras: str
) -> None:
    trainer = Trainer("tensorflow", "tf_strategies", "trainer.tpu")
    variables = {"TF_USE_LEGACY_KERAS": "1" if keras == "2" else "0", "TF_CONFIG": one_replica()}
    status, _, errors = trainer.run("--job-dir", str(tmp_path), **variables)
    assert status == 2, "the status of a permanent failure"
    assert "this VM has no TPU" in errors
    status, _, errors = trainer.run(
        "--job-dir", str(tmp_path), "--any-device", "--epochs", "6", **variables
    )
    assert status == 0, errors
    assert float(str(metrics(tmp_path)["accuracy"])) > 0.94


XGBOOST = Trainer("scikit-learn", "xgboost_digits", "trainer.task")


@contextmanager
def running_replicas(size: int, *arguments: str) -> Iterator[list[subprocess.Popen[str]]]:
    """Start connected replicas of the XGBoost trainer; kill those that still run at the end."""
    cluster = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    with ExitStack() as cleanup:
        processes = [XGBOOST.start(*arguments, **cluster, RANK=str(rank)) for rank in range(size)]
        for process in processes:
            cleanup.enter_context(process)
            cleanup.callback(process.kill)
        yield processes


def read_until(replica: subprocess.Popen[str], words: str) -> None:
    assert replica.stdout is not None
    assert any(words in line for line in replica.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("lost", [0, 2], ids=["rank 0", "another rank"])
def test_xgboost_replicas_after_a_lost_peer_exit_and_resume_after_a_restart(
    tmp_path: Path, lost: int
) -> None:
    arguments = ["--job-dir", str(tmp_path), "--rounds", "12"]
    with running_replicas(3, *arguments, "--round-seconds", "0.3") as replicas:
        read_until(replicas[0], "round 2/")
        replicas[lost].kill()
        for rank, replica in enumerate(replicas):
            if rank != lost:
                _, errors = replica.communicate(timeout=PATIENCE_S)
                assert replica.returncode == 1, "not a crash in XGBoost's clean-up"
                error = parse_traceback(errors, "trainer")
                assert error, "the platform judges the exit by this traceback"
                message = ProgramError(error["type"], error["message"], error["frame"])
                assert reports_lost_peer(exited(WORKER_0, 1, error=message)), message
    with running_replicas(3, *arguments) as replicas:
        outputs = [replica.communicate(timeout=PATIENCE_S) for replica in replicas]
    assert [replica.returncode for replica in replicas] == [0, 0, 0], outputs
    assert all("resuming from round " in output for output, _ in outputs)
    assert metrics(tmp_path)["replicas"] == 3
    assert metrics(tmp_path)["rounds"] == 12
    status, output, _ = XGBOOST.run(*arguments)
    assert status == 0
    assert "resuming from round 13\nheld-out accuracy " in output, "it has nothing left to train"


@pytest.mark.slow
def test_xgboost_with_a_wrong_parameter_reports_xgboosts_error(tmp_path: Path) -> None:
    status, _, errors = XGBOOST.run("--job-dir", str(tmp_path), "--depth", "-1")
    assert status == 1
    assert "XGBoostError" in errors


@pytest.mark.slow
def test_error_of_a_rank_of_torchrun_is_the_error_of_the_job(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a directory")
    launcher = Trainer("pytorch", "pytorch_ddp", "torch.distributed.run")
    launched = ["--nproc-per-node", "1", "-m", "trainer.task"]
    cluster = {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(free_port())}
    status, _, errors = launcher.run(
        *launched, "--epochs", "1", "--job-dir", str(tmp_path / "file"), **cluster
    )
    assert status == 1
    error = parse_traceback(errors, "trainer")
    assert error
    assert error["type"] == "NotADirectoryError"
