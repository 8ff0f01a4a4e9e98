"""Output below the job directory, and the metrics of trials."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from trainmaster.agent.metric.trial_metric import FILE_VARIABLE, parse_measurements
from trainmaster.agent.model.results import Measurement
from trainmaster.algorithms.results import (
    METRIC_FILE_VARIABLE,
    RECORDS_MAX,
    baseline,
    report_metrics,
    write_metrics,
)


def test_agent_reads_reported_metrics_under_each_tag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert METRIC_FILE_VARIABLE == FILE_VARIABLE
    monkeypatch.setenv(METRIC_FILE_VARIABLE, str(tmp_path / "metric" / "output.metrics"))
    for step in range(RECORDS_MAX + 5):
        report_metrics({"accuracy": step / 1000, "loss": -1.5}, step)
    text = (tmp_path / "metric" / "output.metrics").read_text()

    assert len(text.splitlines()) == RECORDS_MAX
    assert list(parse_measurements(text, "accuracy"))[-1] == Measurement(value=0.104, step=104)
    assert list(parse_measurements(text, "loss"))[-1] == Measurement(value=-1.5, step=104)


def test_metrics_of_a_job_that_is_not_a_trial_are_not_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(METRIC_FILE_VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    report_metrics({"accuracy": 1.0}, 1)

    assert list(tmp_path.iterdir()) == []


def test_deployment_config_has_accuracy_in_percent_and_the_step(tmp_path: Path) -> None:
    write_metrics(str(tmp_path), {"accuracy": 0.875, "loss": 0.5}, 120, is_classification=True)

    config = yaml.safe_load((tmp_path / "model" / "deployment_config.yaml").read_text())
    assert config == {"labels": {"accuracy": 87.5, "global_step": 120}}
    assert json.loads((tmp_path / "metrics.json").read_text()) == {
        "accuracy": 0.875,
        "loss": 0.5,
        "global_step": 120,
    }


def test_baseline_is_the_most_frequent_class_or_the_mean() -> None:
    classes = baseline(np.array([1, 1, 0]), np.array([1, 0, 0, 0]), is_classification=True)
    numbers = baseline(np.array([1.0, 3.0]), np.array([5.0, -1.0]), is_classification=False)

    assert classes == {"baseline_accuracy": 0.25}
    assert numbers == {"baseline_rmse": 3.0}
