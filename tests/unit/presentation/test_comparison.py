"""What differs between the specs of jobs."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.jobs import a_job
from trainmaster.core.model.tuning import Assignment, TrialOf
from trainmaster.presentation.comparison import shown_value, spec_differences


def differences(*specs: dict[str, object]) -> dict[str, list[str | None]]:
    """Return field → values, of the fields that differ between jobs with these specs."""
    return spec_differences([replace(a_job(), spec_json=json.dumps(spec)) for spec in specs])


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ({"jobId": "a", "x": 1}, {"jobId": "b", "x": 1}, {}),
        ({"x": 1}, {"x": "1"}, {}),
        ({"x": {"y": True}}, {"x": {"y": False}}, {"x.y": ["true", "false"]}),
        ({"x": None}, {}, {"x": ["null", None]}),
        ({"args": ["--lr", "0.1"]}, {"args": ["--lr=0.2"]}, {"args --lr": ["0.1", "0.2"]}),
        ({"args": ["--a", "1", "--b", "2"]}, {"args": ["--b", "2"]}, {"args --a": ["1", None]}),
        ({"args": ["--lr", "-1e-3"]}, {"args": ["--lr", "-2"]}, {"args --lr": ["-1e-3", "-2"]}),
        ({"args": ["--fast"]}, {"args": []}, {"args --fast": ["set", None]}),
        ({"args": ["--n", "1", "2"]}, {"args": ["--n", "1"]}, {"args --n": ["1 2", "1"]}),
        ({"args": ["in", "--n=1"]}, {"args": ["out", "--n=1"]}, {"args": ["in", "out"]}),
        (
            {"command": ["python", "-m", "a"]},
            {"command": ["python", "-m", "b"]},
            {"command -m": ["a", "b"]},
        ),
        ({"p": [{"n": 1}, {"n": 2}]}, {"p": [{"n": 1}, {"n": 3}]}, {"p[1].n": ["2", "3"]}),
        (
            {"env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]},
            {"env": [{"name": "B", "value": "2"}]},
            {"env[A].name": ["A", None], "env[A].value": ["1", None]},
        ),
    ],
)
def test_only_fields_that_differ_are_shown(
    first: dict[str, object], second: dict[str, object], expected: dict[str, list[str | None]]
) -> None:
    assert differences(first, second) == expected
    assert differences(second, first) == {path: values[::-1] for path, values in expected.items()}


def test_hash_in_a_table_has_its_first_digits() -> None:
    uri = f"gs://bkt/folders/{'a1' * 32}/folder.whl#sha256={'b2' * 32}"
    assert shown_value(uri) == "gs://bkt/folders/a1a1a1a1a1a1…/folder.whl#sha256=b2b2b2b2b2b2…"
    assert [shown_value(value) for value in (None, "9", "a" * 65)] == ["-", "9", "a" * 65]


def test_one_of_three_jobs_without_a_field_has_no_value_in_its_row() -> None:
    assert differences({"x": 1}, {"x": 1}, {}) == {"x": ["1", "1", None]}


def test_trials_of_one_tuning_job_differ_by_their_hyperparameters() -> None:
    assigned = [(Assignment("lr", rate),) for rate in ("0.1", "0.2")]
    trials = [
        replace(a_job(), trial_of=TrialOf("tuning", 1, "loss", values)) for values in assigned
    ]
    assert spec_differences(trials) == {"hyperparameters.lr": ["0.1", "0.2"]}
