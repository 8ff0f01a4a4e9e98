"""Jobs that name a built-in algorithm, from their job files to a model, a metric above the
baseline, and the API.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.conftest import Lab
from trainmaster.core.model.job import State
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name
from trainmaster.presentation.job_view import service_view
from trainmaster_emulators.checkout import ROOT

HEAVY = pytest.mark.heavy(
    fact="built-in algorithms learn in whole jobs",
    quick="`integration/algorithms/test_xgboost.py`, boosted trees in a process",
)

pytestmark = [pytest.mark.e2e, pytest.mark.slow, pytest.mark.timeout(600)]

PYTHON = ROOT / ".images" / "scikit-learn" / "bin" / "python"
WORKER_1 = ReplicaId(TaskType.WORKER, 1)
KERAS = ("linear_learner", "wide_deep_learner", "tab_net")


def upload_data(lab: Lab, example: str, folder: Path) -> None:
    command = [str(PYTHON), str(ROOT / "examples" / "algorithm_data.py"), example, str(folder)]
    for line in subprocess.run(
        command, check=True, capture_output=True, text=True
    ).stdout.splitlines():
        uri = f"gs://{lab.bucket}/{Path(line).relative_to(folder).as_posix()}"
        lab.objects.write(uri, Path(line).read_bytes(), content_type="text/csv")


def example(algorithm: str) -> dict[str, Any]:
    spec: dict[str, Any] = yaml.safe_load(
        (ROOT / "examples" / f"algorithm_{algorithm}" / "job.yaml").read_text()
    )
    return spec


def submit(lab: Lab, algorithm: str, folder: Path, **changes: object) -> str:
    """Submit the example of the algorithm, with these changes of its trainingInput; return the job
    id.
    """
    upload_data(lab, f"algorithm_{algorithm}", folder)
    spec = example(algorithm)
    spec["trainingInput"].update(changes)
    return lab.upload(spec, algorithm)


def run(lab: Lab, algorithm: str, folder: Path, **changes: object) -> State:
    """Run the example of the algorithm to its end."""
    return lab.wait_for_success(submit(lab, algorithm, folder, **changes), within_s=120)


def metrics(lab: Lab, folder: str) -> dict[str, Any]:
    data = lab.objects.read(f"{folder}/metrics.json", max_bytes=1 << 20)
    assert data is not None
    found: dict[str, Any] = json.loads(data)
    return found


@HEAVY
def test_boosted_trees_run_in_place_of_the_image(lab: Lab, tmp_path: Path) -> None:
    job = run(lab, "boosted_trees", tmp_path).job

    assert [note.requested for note in job.plan.origin.substitutions] == [
        "gcr.io/cloud-ml-algos/boosted_trees:latest"
    ]
    found = metrics(lab, str(job.plan.program.job_dir))
    assert found["accuracy"] > found["baseline_accuracy"] + 0.2
    output = service_view(job)["trainingOutput"]
    model = output["builtInAlgorithmOutput"]["modelPath"]
    assert lab.objects.read(f"{model}model.bst", max_bytes=1 << 22)


@HEAVY
def test_distributed_xgboost_continues_after_the_loss_of_a_worker(lab: Lab, tmp_path: Path) -> None:
    args = example("xgboost_dist")["trainingInput"]["args"]
    more = [*args, "--num_boost_round=600", "--checkpoint_secs=1"]
    job_id = submit(lab, "xgboost_dist", tmp_path, args=more)
    lab.wait(job_id, "RUNNING")
    folder = str(lab.state(job_id).job.plan.program.job_dir).rstrip("/")
    checkpoint = f"{folder}/experiment/checkpoints/{job_id}/model.ubj"
    lab.until(lambda: lab.objects.generation(checkpoint) is not None, 60)
    lab.faults.kill_program(vm_name(job_id, WORKER_1))
    lab.wait_for_success(job_id, within_s=120)

    # The rest of the training takes seconds, so the VM and its console may be gone. The log
    # remains.
    assert "resuming after round" in lab.stack.run("trainmaster", "logs", job_id).stdout
    found = metrics(lab, folder)
    assert (found["replicas"], found["global_step"], found["accuracy"] > 0.9) == (3, 600, True)


@HEAVY
@pytest.mark.parametrize("algorithm", KERAS)
def test_keras_algorithm_beats_its_baseline(lab: Lab, tmp_path: Path, algorithm: str) -> None:
    job = run(lab, algorithm, tmp_path).job

    found = metrics(lab, str(job.plan.program.job_dir))
    if algorithm == "linear_learner":
        assert found["rmse"] < 0.9 * found["baseline_rmse"]
    else:
        assert found["accuracy"] > found["baseline_accuracy"] + 0.05


@HEAVY
def test_tuning_job_of_an_algorithm_compares_the_reported_metric(lab: Lab, tmp_path: Path) -> None:
    tuning = {
        "goal": "MAXIMIZE",
        "hyperparameterMetricTag": "accuracy",
        "maxTrials": 2,
        "maxParallelTrials": 2,
        "params": [{"parameterName": "max_depth", "type": "INTEGER", "minValue": 1, "maxValue": 4}],
    }
    job = run(lab, "boosted_trees", tmp_path, hyperparameters=tuning).job

    trials = service_view(job)["trainingOutput"]["trials"]
    assert len(trials) == 2
    assert all(trial["finalMetric"]["objectiveValue"] > 0.6 for trial in trials)
    assert all(trial["builtInAlgorithmOutput"]["modelPath"].endswith("/model/") for trial in trials)
