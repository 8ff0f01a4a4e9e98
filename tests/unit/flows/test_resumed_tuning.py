"""Tuning jobs that resume an earlier one.

The earlier one, `STUDY`, searches 1 to 3 layers and a width of 16 or 32. Its trials, which are
complete, have tried the first three combinations.
"""

from __future__ import annotations

import pytest

from tests.support.jobs import a_tuning_spec
from tests.support.study import STUDY, Study, run_whole_study
from tests.support.world import World
from trainmaster.errors import PermanentError
from trainmaster.flows.user_requests import delete_job


def test_resumed_tuning_job_starts_with_the_earlier_results(study: Study) -> None:
    run_whole_study(study)
    resumed = Study("digits_2", store=study.store, bus=study.bus, fleet=study.fleet)
    resumed.submit(a_tuning_spec(resumePreviousJobId=STUDY, maxTrials=9), source="b")
    resumed.deliver()
    assert [(past.values, past.value) for past in resumed.tuning.earlier] == [
        (("1", "16"), 0.1),
        (("1", "32"), 0.2),
        (("2", "16"), 0.3),
    ]
    assert [trial.values for trial in resumed.tuning.trials] == [("2", "32"), ("3", "16")], (
        "the next combinations, numbered from 1"
    )


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (a_tuning_spec(resumePreviousJobId="missing"), "names missing, which is not a tuning job"),
        (a_tuning_spec(resumePreviousJobId="plain"), "names plain, which is not a tuning job"),
        (
            a_tuning_spec(resumePreviousJobId=STUDY, goal="MINIMIZE"),
            "which has other params, another goal",
        ),
    ],
)
def test_tuning_job_that_cannot_be_resumed_is_rejected_by_its_field(
    study: Study, spec: dict[str, object], problem: str
) -> None:
    World("plain", store=study.store, bus=study.bus).submit()
    run_whole_study(study)
    resumed = Study("digits_2", store=study.store, bus=study.bus, fleet=study.fleet)
    with pytest.raises(PermanentError, match=problem) as error:
        resumed.submit(spec, source="b")
    assert "training_input.hyperparameters.resume_previous_job_id" in str(error.value)


def test_repeated_submission_is_accepted_after_the_resumed_job_was_deleted(study: Study) -> None:
    run_whole_study(study)
    resumed = Study("digits_2", store=study.store, bus=study.bus, fleet=study.fleet)
    spec = a_tuning_spec(resumePreviousJobId=STUDY, maxTrials=9)
    resumed.submit(spec, source="b")
    assert delete_job(STUDY, "request-1", study.deps, by="anna")
    resumed.submit(spec, source="b")
    assert len(resumed.tuning.earlier) == 3
    assert study.store.rejections() == ()
