"""Tuning jobs that are cancelled or deleted, and their trials with them.

A tuning job has a record of each trial (`Study.states`), and each trial is a job of its own
(`Study.trial`), which `tune` creates. Cancelling the tuning job changes both.
"""

from __future__ import annotations

from typing import Any

from tests.support.jobs import a_tuning_spec
from tests.support.study import STUDY, Study, run_whole_study
from trainmaster.core.events import CancelRequested
from trainmaster.flows import tune
from trainmaster.flows.commit.record import record
from trainmaster.flows.user_requests import delete_job
from trainmaster.messaging.internal_requests import TuneRequest
from trainmaster_local.memory.store import MemoryStore


def test_cancelled_tuning_job_cancels_its_trials_and_records_their_end(study: Study) -> None:
    study.start_tuning()
    study.report_ready(1)
    record(CancelRequested(STUDY, "me", study.now), study.deps)
    assert study.state == "CANCELLED"
    study.deliver()
    assert study.states == ["CANCELLED", "CANCELLED"]
    assert [study.trial(number).state for number in (1, 2)] == ["CANCELLED", "CANCELLED"]
    study.sweep()
    study.deliver()
    assert study.fleet.list_all() == ()
    assert study.store.jobs_with_pending() == ()
    assert study.store.live_jobs().jobs == ()
    study.check()


def test_sweep_completes_a_cancellation_whose_message_was_lost(study: Study) -> None:
    study.start_tuning()
    record(CancelRequested(STUDY, "me", study.now), study.deps)
    study.bus.drain()
    study.sweep()
    study.deliver()
    assert study.store.live_jobs().jobs == ()


def test_deleted_tuning_job_deletes_its_trials(study: Study) -> None:
    """Otherwise their histories would stay for ever: no user sees a trial's job, and so none
    deletes it.
    """
    run_whole_study(study)
    assert [study.trial(number).job.deleted_at for number in (1, 2, 3)] == [None] * 3
    assert delete_job(STUDY, "request-1", study.deps, by="anna")
    study.deliver()
    assert None not in [study.trial(number).job.deleted_at for number in (1, 2, 3)]
    assert study.store.jobs_with_pending() == ()
    study.check()


def test_trial_created_after_the_cancellation_of_its_tuning_job_is_cancelled(study: Study) -> None:
    """The delivery that creates the trial's job has read the tuning job before the cancellation."""
    study.submit(a_tuning_spec(maxParallelTrials=1))
    study.bus.drain()
    real_store = study.store
    late: list[str] = []

    class CancellingStore(MemoryStore):
        """Cancels the tuning job between the commit of a suggestion and the creation of the trial's
        job. All else is the real store's.
        """

        def load(self, job_id: str, replica: str | None = None) -> Any:
            if job_id == "digits_1-trial-1" and not late:
                late.append(job_id)
                study.store = real_store
                record(CancelRequested(STUDY, "me", study.now), study.deps)
                tune.handle(TuneRequest(STUDY), study.suggester, study.deps)
                assert study.trial(1).state == "CANCELLED", (
                    "the other delivery creates the job and cancels it"
                )
                return None
            return real_store.load(job_id, replica)

        def __getattribute__(self, name: str) -> Any:
            # Not __getattr__, which is not called for what MemoryStore has.
            if name == "load":
                return object.__getattribute__(self, name)
            return getattr(real_store, name)

    study.store = CancellingStore()
    deps = study.deps
    tune.handle(TuneRequest(STUDY), study.suggester, deps)
    assert late
    study.deliver()
    assert study.store.live_jobs().jobs == ()
    assert study.fleet.list_all() == ()
    assert study.states == ["CANCELLED"]
    study.check()


def test_maximum_running_time_of_the_tuning_job_cancels_its_trials(study: Study) -> None:
    study.submit(a_tuning_spec({"scheduling": {"maxRunningTime": "600s"}}))
    study.deliver()
    study.report_ready(1)
    study.wait(300)
    study.report_ready(2)
    study.wait(301)
    study.sweep()
    study.deliver()
    assert study.state == "CANCELLED"
    assert (
        study.job.error_message
        == "Job was cancelled for exceeding the maximum allowed duration of 600 seconds."
    )
    assert study.states == ["CANCELLED", "CANCELLED"]
