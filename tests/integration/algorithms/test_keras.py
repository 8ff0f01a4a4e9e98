"""`linear_learner`, `wide_deep_learner` and `tab_net` learn, and their SavedModels take
CSV rows.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.algorithms.conftest import ROOT, Run, python_of

pytestmark = [
    pytest.mark.heavy(
        fact="built-in algorithms learn",
        quick="`integration/algorithms/test_xgboost.py`, boosted trees; `unit/algorithms`",
    ),
    pytest.mark.timeout(300),
]

Runner = Callable[..., Run]
SUBSCRIBERS = "algorithm_wide_deep_learner/subscribers.csv"
SMALL_TAB_NET = ("--feature_dim=16", "--num_decision_steps=3")
SERVE = """
import json, sys
import tensorflow as tf
model = tf.saved_model.load(sys.argv[1])
outputs = model.signatures["serving_default"](tf.constant(sys.argv[2:]))
print(json.dumps({name: value.numpy().astype(str).tolist() for name, value in outputs.items()}))
"""


def predict(job_dir: Path, *rows: str) -> dict[str, Any]:
    """Return the outputs of the run's SavedModel for rows of CSV, one value per row each."""
    command = [str(python_of("linear_learner")), "-c", SERVE, str(job_dir / "model"), *rows]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def features(path: Path, count: int) -> tuple[list[str], list[str]]:
    """Return the first targets, and the rest of their rows."""
    lines = path.read_text().splitlines()[:count]
    return [line.partition(",")[0] for line in lines], [line.partition(",")[2] for line in lines]


def test_linear_learner_beats_the_mean_of_diabetes_by_a_tenth(run: Runner, data: Path) -> None:
    path = data / "algorithm_linear_learner/diabetes.csv"
    ran = run(
        "linear_learner",
        "--preprocess",
        f"--training_data_path={path}",
        "--model_type=regression",
        "--max_steps=500",
    )

    assert ran.metrics["rmse"] < 0.9 * ran.metrics["baseline_rmse"]
    targets, rows = features(path, 5)
    predicted = [float(number) for number in predict(ran.job_dir, *rows)["predictions"]]
    mean = sum(map(float, targets)) / 5
    error = sum(
        abs(number - float(target)) for number, target in zip(predicted, targets, strict=True)
    )
    assert error < 1.5 * sum(abs(mean - float(target)) for target in targets)


@pytest.mark.parametrize(
    ("algorithm", "arguments"),
    [
        ("linear_learner", ()),
        ("linear_learner", ("--optimizer_type=adam", "--learning_rate=0.02")),
        ("wide_deep_learner", ("--use_wide", "--embed_categories", "--hidden_units=16,8")),
        (
            "wide_deep_learner",
            (
                "--use_wide=false",
                "--dnn_dropout=0.05",
                "--dnn_optimizer_type=sgd",
                "--dnn_learning_rate=0.2",
            ),
        ),
        ("tab_net", (*SMALL_TAB_NET, "--yeo_johnson_transform", "--loss_function_type=focal_loss")),
    ],
)
def test_algorithm_learns_categories_with_missing_values_and_unique_ids(
    algorithm: str, arguments: tuple[str, ...], run: Runner, data: Path
) -> None:
    path = data / SUBSCRIBERS
    common = (
        "--preprocess",
        f"--training_data_path={path}",
        "--model_type=classification",
        "--max_steps=400",
    )
    ran = run(algorithm, *common, *arguments)

    assert ran.metrics["test_accuracy"] > ran.metrics["baseline_accuracy"] + 0.03
    targets, rows = features(path, 200)
    outputs = predict(ran.job_dir, *rows)
    hits = sum(found == target for found, target in zip(outputs["classes"], targets, strict=True))
    assert hits / 200 > ran.metrics["baseline_accuracy"] + 0.03
    assert outputs["all_classes"][0] == ["leaves", "stays"]
    if algorithm == "tab_net":
        assert len(outputs["aggregated_mask_values"][0]) == 10, "one for each column"


def test_tab_net_learns_tumours(run: Runner, data: Path) -> None:
    path = data / "algorithm_tab_net/breast_cancer.csv"
    arguments = (
        "--preprocess",
        f"--training_data_path={path}",
        "--model_type=classification",
        "--max_steps=150",
    )
    ran = run("tab_net", *arguments, *SMALL_TAB_NET)

    assert ran.metrics["accuracy"] > ran.metrics["baseline_accuracy"] + 0.2


def test_restarted_job_continues_after_the_stored_step_and_reports_to_a_tuning_job(
    run: Runner, data: Path, tmp_path: Path
) -> None:
    path, report = data / "algorithm_linear_learner/diabetes.csv", tmp_path / "output.metrics"
    arguments = (f"--training_data_path={path}", "--model_type=regression")
    variables = {"CLOUD_ML_JOB_ID": "diabetes_1", "CLOUD_ML_HP_METRIC_FILE": str(report)}
    run("linear_learner", *arguments, "--max_steps=100", **variables)
    second = run("linear_learner", *arguments, "--max_steps=150", **variables)

    assert "resuming after step 100" in second.output
    assert [json.loads(line)["global_step"] for line in report.read_text().splitlines()] == [
        "100",
        "150",
    ]
    assert second.metrics["global_step"] == 150


def test_sparsemax_is_the_projection_onto_the_simplex() -> None:
    """Compared with the closed forms of arXiv 1602.02068, section 2.2, and with a brute-force
    projection.
    """
    script = """
import numpy as np, tensorflow as tf
from trainmaster.algorithms.keras_models.tab_net_layers import sparsemax
random = np.random.default_rng(1)
logits = random.normal(size=(200, 6)).astype("float32") * 2
found = sparsemax(tf.constant(logits)).numpy()
assert np.allclose(found.sum(axis=1), 1, atol=1e-5) and (found >= 0).all() and (found == 0).any()
def project(row):  # bisection for the threshold
    low, high = row.min() - 1, row.max()
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if np.maximum(row - middle, 0).sum() > 1 else (low, middle)
    return np.maximum(row - low, 0)
assert np.allclose(found, np.array([project(row.astype("float64")) for row in logits]), atol=1e-4)
two = sparsemax(tf.constant([[0.3, 0.0], [1.5, 0.0]])).numpy()
assert np.allclose(two, [[0.65, 0.35], [1.0, 0.0]], atol=1e-6)
"""
    ran = subprocess.run(
        [str(python_of("tab_net")), "-c", script],
        cwd=ROOT / "shared",
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def test_tab_net_masks_select_the_columns_that_decide(run: Runner, tmp_path: Path) -> None:
    """Published property: on the synthetic data Syn2 the masks select the salient columns.

    Source: arXiv 1908.07442, section 4.1; data: Chen et al. (arXiv 1802.07814): of eleven standard
    normal columns, the third to the sixth decide, by exp(the sum of their squares - 4).
    """
    script = """
import numpy as np
random = np.random.default_rng(7)
columns = random.normal(size=(6000, 11))
odds = np.exp((columns[:, 2:6] ** 2).sum(axis=1) - 4)
labels = random.random(6000) < odds / (1 + odds)
for label, row in zip(labels, columns):
    print(",".join([str(int(label)), *(f"{value:.5f}" for value in row)]))
"""
    python = str(python_of("tab_net"))
    rows = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout
    (tmp_path / "syn2.csv").write_text(rows)
    ran = run(
        "tab_net",
        "--preprocess",
        f"--training_data_path={tmp_path / 'syn2.csv'}",
        "--model_type=classification",
        "--max_steps=600",
        "--batch_size=500",
        "--feature_dim=16",
        "--num_decision_steps=4",
        "--relaxation_factor=2.0",
        "--sparsity_loss_weight=0.02",
    )

    assert ran.metrics["accuracy"] > ran.metrics["baseline_accuracy"] + 0.1
    masks = predict(ran.job_dir, *(line.partition(",")[2] for line in rows.splitlines()[:300]))[
        "aggregated_mask_values"
    ]
    totals = [sum(float(row[column]) for row in masks) for column in range(11)]
    assert sum(totals[2:6]) > 0.7 * sum(totals)
