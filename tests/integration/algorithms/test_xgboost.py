"""`boosted_trees` and `xgboost_dist` learn, store the documented files, continue after a restart,
refuse wrong data.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.algorithms.conftest import Run, python_of, start

HEAVY = pytest.mark.heavy(
    fact="built-in algorithms learn", quick="boosted trees in the same module; `unit/algorithms`"
)

pytestmark = pytest.mark.slow

Runner = Callable[..., Run]
SUBSCRIBERS = "algorithm_wide_deep_learner/subscribers.csv"


def test_boosted_trees_learn_wines_and_store_the_documented_files(run: Runner, data: Path) -> None:
    path = data / "algorithm_boosted_trees/wine.csv"
    ran = run(
        "boosted_trees",
        "--preprocess",
        f"--training_data_path={path}",
        "--objective=multi:softmax",
        "--num_class=3",
    )

    assert ran.metrics["accuracy"] > ran.metrics["baseline_accuracy"] + 0.3
    stored = {
        found.relative_to(ran.job_dir).as_posix()
        for found in ran.job_dir.rglob("*")
        if found.is_file()
    }
    assert stored == {
        "artifacts/instance_generator.py",
        "artifacts/metadata.json",
        "metrics.json",
        "model/deployment_config.yaml",
        "model/model.bst",
        "model/model.ubj",
        "processed_data/test.csv",
        "processed_data/training.csv",
        "processed_data/validation.csv",
    }
    assert (ran.job_dir / "model/model.bst").read_bytes() == (
        ran.job_dir / "model/model.ubj"
    ).read_bytes()


PREDICT = """
import json, sys, numpy, xgboost
sys.path.insert(0, sys.argv[1] + "/artifacts")
from instance_generator import encode_row
metadata = json.load(open(sys.argv[1] + "/artifacts/metadata.json"))
model = xgboost.Booster(model_file=sys.argv[1] + "/model/model.ubj")
rows = [line.rstrip("\\n").split(",") for line in open(sys.argv[2])]
encoded = [encode_row(row[1:], metadata) for row in rows]
matrix = xgboost.DMatrix(numpy.array(encoded, dtype=numpy.float32))
classes = metadata["target"]["classes"]
predicted = [classes[int(score > 0.5)] for score in model.predict(matrix)]
print(sum(a == row[0] for a, row in zip(predicted, rows)) / len(rows))
"""


@HEAVY
def test_client_predicts_categories_and_missing_values_with_the_stored_artifacts(
    run: Runner, data: Path
) -> None:
    path = data / SUBSCRIBERS
    ran = run(
        "boosted_trees",
        "--preprocess",
        f"--training_data_path={path}",
        "--objective=binary:logistic",
    )

    assert ran.metrics["test_accuracy"] > ran.metrics["baseline_accuracy"] + 0.05
    columns = json.loads((ran.job_dir / "artifacts/metadata.json").read_text())["columns"]
    assert [column["treatment"] for column in columns[:4]] == [
        "row_identifier",
        "vocabulary",
        "hashing",
        "identity",
    ]
    assert columns[-1]["treatment"] == "constant"
    command = [str(python_of("boosted_trees")), "-c", PREDICT, str(ran.job_dir), str(path)]
    predicted = subprocess.run(command, capture_output=True, text=True, check=True)
    assert float(predicted.stdout) > ran.metrics["baseline_accuracy"] + 0.05


@HEAVY
def test_restarted_job_continues_after_the_stored_round(run: Runner, data: Path) -> None:
    path = data / "algorithm_boosted_trees/wine.csv"
    arguments = (f"--training_data_path={path}", "--objective=multi:softprob", "--num_class=3")
    first = run("boosted_trees", *arguments, "--num_boost_round=3", CLOUD_ML_JOB_ID="wine_1")
    second = run("boosted_trees", *arguments, "--num_boost_round=5", CLOUD_ML_JOB_ID="wine_1")

    assert "round 3/3" in first.output
    assert "resuming after round 3" in second.output
    assert "round 5/5" in second.output
    assert "round 3/5" not in second.output
    other = run("boosted_trees", *arguments, "--num_boost_round=1", CLOUD_ML_JOB_ID="wine_2")
    assert "resuming" not in other.output


@HEAVY
def test_data_that_do_not_fit_the_objective_end_with_status_2(run: Runner, data: Path) -> None:
    ran = run(
        "boosted_trees",
        f"--training_data_path={data / 'algorithm_boosted_trees/wine.csv'}",
        "--objective=binary:logistic",
    )

    assert ran.exit_status == 2
    assert "the target has the value 2, and binary:logistic needs 0 and 1" in ran.output
    assert "Traceback" not in ran.output


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def run_replicas(job_dir: Path, count: int, arguments: list[str]) -> list[Run]:
    port = str(free_port())
    variables = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count)}
    processes = [
        start(
            "xgboost_dist", job_dir, [*arguments, "--nthread=1"], {**variables, "RANK": str(rank)}
        )
        for rank in range(count)
    ]
    try:
        outputs = [process.communicate(timeout=200)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
    return [
        Run(process.returncode, output, job_dir)
        for process, output in zip(processes, outputs, strict=True)
    ]


@HEAVY
def test_distributed_xgboost_learns_digits_from_the_files_of_all_replicas(
    tmp_path: Path, data: Path
) -> None:
    folder = data / "algorithm_xgboost_dist"
    arguments = [
        f"--training_data_path={folder}/training/*.csv",
        f"--validation_data_path={folder}/validation/*.csv",
    ]
    first, second = run_replicas(
        tmp_path, 2, [*arguments, "--objective=multi:softmax", "--num_class=10", "--max_depth=4"]
    )

    assert (first.exit_status, second.exit_status) == (0, 0), first.output + second.output
    assert first.metrics["accuracy"] > first.metrics["baseline_accuracy"] + 0.6
    assert first.metrics["replicas"] == 2
    assert "from 3 of 6 files" in first.output
    assert "from 3 of 6 files" in second.output


@HEAVY
def test_categories_are_refused_by_the_replica_that_reads_them_at_once(
    tmp_path: Path, data: Path
) -> None:
    shutil.copy(data / SUBSCRIBERS, tmp_path / "b.csv")
    shutil.copy(data / "algorithm_xgboost_dist/training/part-0.csv", tmp_path / "a.csv")
    arguments = [f"--training_data_path={tmp_path}/*.csv", "--objective=reg:squarederror"]
    peer, refusing = run_replicas(tmp_path, 2, arguments)

    assert refusing.exit_status == 2
    assert "column 1 of the training data has the value" in refusing.output
    assert "Traceback" not in refusing.output
    assert peer.exit_status == 1, peer.output
    assert "XGBoostError" in peer.output


@HEAVY
def test_fewer_files_than_replicas_are_refused(tmp_path: Path, data: Path) -> None:
    arguments = [
        f"--training_data_path={data / 'algorithm_boosted_trees/wine.csv'}",
        "--objective=reg:squarederror",
    ]
    runs = run_replicas(tmp_path, 2, arguments)

    assert [
        ran.exit_status for ran in runs if "names 1 files, and the job has 2 replicas" in ran.output
    ] == [2, 2]
