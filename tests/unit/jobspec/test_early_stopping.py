"""The fields that stop trials early or resume a tuning job, in both formats."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.jobs import a_spec, a_tuning_spec
from trainmaster.core.model.tuning import StoppingRule
from trainmaster.jobspec.accept import AcceptedSpec, accept
from trainmaster.jobspec.problems import InvalidJob

POOL = {
    "machineSpec": {"machineType": "n1-standard-4"},
    "replicaCount": "1",
    "containerSpec": {"imageUri": "us-docker.pkg.dev/p/r/trainer:1"},
}


def a_study(trainmaster: dict[str, Any] | None = None, **study: Any) -> AcceptedSpec:
    """Return an accepted tuning job in Vertex AI's format. `study`: fields of `studySpec`."""
    parameters = [{"parameterId": "layers", "integerValueSpec": {"minValue": 1, "maxValue": 3}}]
    document = {
        "displayName": "tuning",
        "studySpec": {"metrics": [{"metricId": "accuracy"}], "parameters": parameters, **study},
        "maxTrialCount": 3,
        "parallelTrialCount": 1,
        "trialJobSpec": {"workerPoolSpecs": [POOL]},
        "trainmaster": {"region": "us-central1", **(trainmaster or {})},
    }
    return accept(document, default_job_id="tuning_1")


def substituted(spec: AcceptedSpec) -> list[str]:
    """Return the fields about stopping (`…topping…`) that have another meaning here."""
    return [
        substitution.field
        for substitution in spec.plan.origin.substitutions
        if "topping" in substitution.field
    ]


@pytest.mark.parametrize(
    ("study", "rule", "fields"),
    [
        pytest.param({}, StoppingRule.NONE, [], id="none"),
        pytest.param({"medianAutomatedStoppingSpec": {}}, StoppingRule.MEDIAN, [], id="median"),
        pytest.param(
            {"decayCurveStoppingSpec": {}},
            StoppingRule.WORST_QUARTER,
            ["studySpec.decayCurveStoppingSpec"],
            id="decay curve",
        ),
        pytest.param(
            {"medianAutomatedStoppingSpec": {"useElapsedDuration": True}},
            StoppingRule.MEDIAN,
            ["studySpec.medianAutomatedStoppingSpec.useElapsedDuration"],
            id="elapsed time",
        ),
        pytest.param(
            {"convex_automated_stopping_spec": {"use_elapsed_duration": True}},
            StoppingRule.WORST_QUARTER,
            [
                "studySpec.convex_automated_stopping_spec",
                "studySpec.convex_automated_stopping_spec.use_elapsed_duration",
            ],
            id="convex, in snake case",
        ),
    ],
)
def test_stopping_rule_of_a_study_is_resolved_with_its_substitutions(
    study: dict[str, Any], rule: StoppingRule, fields: list[str]
) -> None:
    spec = a_study(**study)
    assert spec.tuning is not None
    assert spec.tuning.stopping is rule
    assert substituted(spec) == fields


def test_two_stopping_rules_are_refused() -> None:
    with pytest.raises(InvalidJob, match="cannot be combined with medianAutomatedStoppingSpec"):
        a_study(medianAutomatedStoppingSpec={}, decayCurveStoppingSpec={})


@pytest.mark.parametrize(
    ("named", "stored"),
    [
        ("digits_1", "digits_1"),
        ("4711", "custom_4711"),
        ("projects/p/locations/us-central1/hyperparameterTuningJobs/4711", "custom_4711"),
    ],
)
def test_study_resumes_the_tuning_job_that_the_extension_names(named: str, stored: str) -> None:
    tuning = a_study({"resumePreviousJobId": named}).tuning
    assert tuning is not None
    assert tuning.resumes == stored


@pytest.mark.parametrize(
    "document",
    [a_spec(), a_tuning_spec()],
    ids=["job without hyperparameters", "job with hyperparameters"],
)
def test_training_input_names_the_resumed_job_in_its_own_field(document: dict[str, Any]) -> None:
    with pytest.raises(InvalidJob, match="a TrainingInput has hyperparameters for it"):
        accept(
            {**document, "trainmaster": {"resumePreviousJobId": "digits_1"}},
            default_job_id="digits_2",
        )


def test_name_that_is_not_a_job_id_is_refused() -> None:
    with pytest.raises(InvalidJob, match="must be the id of a tuning job"):
        a_study({"resumePreviousJobId": "digits-1"})
