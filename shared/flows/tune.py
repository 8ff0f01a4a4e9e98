"""Make the trials of a tuning job equal what its ledger says: each is a job of its own.

    [ every trial's job: made if it is not there, cancelled if the tuning job has ended, and what became of it told
      ──► the job is over, or trials begin: their values are committed before their jobs are made ] ──► nothing new

Level-triggered: it looks at what is, not at what was asked, so it may run twice, late, beside another, or stop
half-way. A trial that the ledger has gets its job even where the tuning job has ended meanwhile, and is cancelled at
once: whoever is late with making it finds it made, and no trial outlives its tuning job.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from shared.core.events import AllReady, ProvisioningStarted, StudyOver, TrialEnded, TrialStarted, TrialSuggested
from shared.core.model.job import Job, JobState
from shared.core.model.tuning import Trial, TrialState, trial_id
from shared.core.reconcile.trial_jobs import job_of, tuning_of
from shared.core.rules.tuning import end_of, may_begin
from shared.errors import PermanentError, TemporaryError
from shared.flows import cancel
from shared.flows.record import Deps, record
from shared.flows.submit import placed
from shared.ports import Suggester

PASSES: Final = 8
"""Rounds in one delivery; the rest is left to the next one."""
BEGINNINGS_MAX: Final = 16
"""In one round: each is a few reads and two commits."""
BY: Final = "its tuning job, which has ended"


def handle(job_id: str, suggester: Suggester, deps: Deps) -> None:
    """Returns when there is nothing left to do but wait for trials; raises TemporaryError when that takes longer."""
    if _load(job_id, deps).tuning is None:
        raise PermanentError(f"{job_id} is no tuning job")
    keys = deps.store.pending_keys(job_id)
    for _ in range(PASSES):
        study = _load(job_id, deps)
        for trial in tuning_of(study).live:
            _look_after(trial, study, deps)
        study = _load(job_id, deps)
        if not _decide(study, suggester, deps):
            deps.store.mark_done(job_id, keys, deps.clock())
            return
    raise TemporaryError(f"{job_id}: more of its trials begin or end than one delivery can look after")


def _decide(study: Job, suggester: Suggester, deps: Deps) -> bool:
    """False: nothing follows from what is known of the trials."""
    if study.state.is_terminal:
        return False
    if end_of(study):
        record(study.job_id, StudyOver(study.job_id, deps.clock(), tuning_of(study).ended), deps)
        return True
    begins = min(may_begin(study), BEGINNINGS_MAX)
    for _ in range(begins):
        tuning = tuning_of(study)
        number = len(tuning.trials) + 1
        values = suggester.suggest(tuning, trial_id(study.job_id, number))
        record(study.job_id, TrialSuggested(study.job_id, number, values, deps.clock(), tuning.ended), deps)
        study = _load(study.job_id, deps)
        if not may_begin(study):
            break
    return begins > 0


def _look_after(trial: Trial, study: Job, deps: Deps) -> None:
    job = _job_of(trial, study, deps)
    if study.state.is_terminal and not job.state.is_terminal:
        cancel.handle(job.job_id, BY, deps)
        job = _load(job.job_id, deps)
    _tell(trial, job, study, deps)


def _job_of(trial: Trial, study: Job, deps: Deps) -> Job:
    """The trial's own job, made now if nobody has made it."""
    job_id = trial_id(study.job_id, trial.number)
    found = deps.store.load(job_id)
    if found is not None:
        return found.state.job
    now = deps.clock()
    record(job_id, placed(job_of(study, trial, now), now, deps.store), deps)
    return _load(job_id, deps)


def _tell(trial: Trial, job: Job, study: Job, deps: Deps) -> None:
    """The tuning job what its trial's job has become. It is itself as far as the first of its trials."""
    now, number = deps.clock(), trial.number
    if study.state is JobState.QUEUED and job.state is not JobState.QUEUED:
        record(study.job_id, ProvisioningStarted(study.job_id, now), deps)
    if study.started_at is None and job.started_at is not None:
        record(study.job_id, AllReady(study.job_id, study.attempt, now), deps)
    if trial.started_at is None and job.started_at is not None:
        record(study.job_id, TrialStarted(study.job_id, number, job.started_at, now), deps)
    if job.state.is_terminal:
        record(study.job_id, _ended(number, job, study.job_id, now), deps)


def _ended(number: int, job: Job, study_id: str, now: datetime) -> TrialEnded:
    return TrialEnded(
        study_id,
        number,
        TrialState(job.state.value),
        job.ended_at or now,
        now,
        job.trial_of.measurement if job.trial_of else None,
        (job.error_message or "") if job.state is JobState.FAILED else "",
    )


def _load(job_id: str, deps: Deps) -> Job:
    loaded = deps.store.load(job_id)
    if loaded is None:
        raise PermanentError(f"no job {job_id}")
    return loaded.state.job
