"""Make the trials of a tuning job equal what its ledger says. Each trial is a job of its own.

    give up unpromising trials
    ──► repeat until nothing is left to do:
            create the job of every trial, stop it if it is given up or the tuning job has ended,
            and record what it became
        ──► complete the tuning job, or commit the values of new trials, and create their jobs

The flow is level-triggered: it compares stored states, so it may run twice, late, concurrently, or
stop halfway. A trial in the ledger gets its job even if the tuning job has ended meanwhile, and is
cancelled at once: every trial has exactly one job, and no trial outlives its tuning job.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Final

from trainmaster.core.events import (
    AllReady,
    JobSubmitted,
    ProvisioningStarted,
    StopRequested,
    TrialEnded,
    TrialStarted,
    TrialSuggested,
    TrialUnpromising,
    TuningEnded,
)
from trainmaster.core.model.fit import trials_of
from trainmaster.core.model.job import Job, JobState, tuning_of
from trainmaster.core.model.machine_set import ReleaseCause
from trainmaster.core.model.tuning import Trial, TrialState, trial_id
from trainmaster.core.reconcile.trial_jobs import trial_job
from trainmaster.core.rules.tuning import final_decision, trials_to_begin
from trainmaster.errors import PermanentError
from trainmaster.flows.commit.history import expire_history
from trainmaster.flows.commit.record import record
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.provisioning import kept_machines
from trainmaster.flows.user_requests import cancel_job, delete_job
from trainmaster.messaging import internal_requests, topics
from trainmaster.messaging.internal_requests import TuneRequest, encode_tune
from trainmaster.messaging.push import Message
from trainmaster.ports import Suggester

CYCLES_MAX: Final = 8
"""Cycles in one delivery, each over all trials that have not ended. The next delivery continues."""
REQUESTS_MAX: Final = 4
"""How often a request is continued at once. After that, the sweep continues, within a minute."""
NEW_TRIALS_MAX: Final = 16
"""New trials in one cycle. Each takes a few reads and two commits."""
CANCELLED_BY: Final = "its tuning job, which has ended"
DELETED_WITH: Final = "with-its-tuning-job"
"""Key of the request that deletes the job of a trial."""


def handle(request: TuneRequest, suggester: Suggester, deps: CreationDeps) -> None:
    """Reconcile a tuning job until there is nothing to do before a trial changes, or for at most
    `CYCLES_MAX` cycles.

    In the second case the request is published again, up to `REQUESTS_MAX` times. No error is
    raised, because Pub/Sub slows down a subscription that answers with errors. The ledger entries
    stay pending, so the sweep continues after the last request.
    """
    job_id = request.job_id
    if _load_job(job_id, deps).tuning is None:
        raise PermanentError(f"{job_id} is not a tuning job")
    pending_keys = deps.store.pending_keys(job_id)
    _give_up_unpromising(_load_job(job_id, deps), suggester, deps)
    for _ in range(CYCLES_MAX):
        tuning_job = _load_job(job_id, deps)
        for trial in tuning_of(tuning_job).live:
            _reconcile_trial(trial, tuning_job, deps)
        if not _advance(_load_job(job_id, deps), suggester, deps):
            _release_machines(_load_job(job_id, deps), deps)
            if pending_keys and tuning_job.deleted_at is not None:
                _delete_trials(tuning_job, deps)
                expire_history(tuning_job, deps.store)
            deps.store.mark_done(job_id, pending_keys, deps.clock())
            return
    if request.number < REQUESTS_MAX:
        following = replace(request, number=request.number + 1)
        deps.bus.publish(topics.TUNE, encode_tune(following), attributes={})


def _give_up_unpromising(tuning_job: Job, suggester: Suggester, deps: CreationDeps) -> None:
    """Order that unpromising trials are stopped early.

    Their jobs are stopped when the trials are reconciled.
    """
    if tuning_job.state.is_terminal:
        return
    for number, comparison in suggester.find_unpromising(tuning_of(tuning_job)).items():
        record(TrialUnpromising(tuning_job.job_id, number, comparison, deps.clock()), deps)


def _advance(tuning_job: Job, suggester: Suggester, deps: CreationDeps) -> bool:
    """Complete the tuning job or start new trials. Return False if neither is due."""
    if tuning_job.state.is_terminal:
        return False
    if final_decision(tuning_job):
        record(TuningEnded(tuning_job.job_id, deps.clock(), tuning_of(tuning_job).ended), deps)
        return True
    new_trials = min(trials_to_begin(tuning_job), NEW_TRIALS_MAX)
    for _ in range(new_trials):
        tuning = tuning_of(tuning_job)
        number = len(tuning.trials) + 1
        values = suggester.suggest(tuning, trial_id(tuning_job.job_id, number))
        record(TrialSuggested(tuning_job.job_id, number, values, deps.clock(), tuning.ended), deps)
        tuning_job = _load_job(tuning_job.job_id, deps)
        if not trials_to_begin(tuning_job):
            break
    return new_trials > 0


def _release_machines(tuning_job: Job, deps: CreationDeps) -> None:
    """Release the machines that trials of a tuning job have kept for a next one, once it has
    ended. What is missed here is released at its deadline.
    """
    if tuning_job.state.is_terminal and tuning_job.plan.keep_s:
        for kept in deps.store.kept_machines():
            if trials_of(kept.machine_set) == tuning_job.job_id:
                kept_machines.release(kept.machine_set, ReleaseCause.TUNING_ENDED, deps)


def _delete_trials(tuning_job: Job, deps: CreationDeps) -> None:
    """Delete the jobs of all trials together with their tuning job, so that their
    histories expire.
    """
    for trial in tuning_of(tuning_job).trials:
        delete_job(trial_id(tuning_job.job_id, trial.number), DELETED_WITH, deps, by=CANCELLED_BY)


def _reconcile_trial(trial: Trial, tuning_job: Job, deps: CreationDeps) -> None:
    job = _load_or_create_job(trial, tuning_job, deps)
    if tuning_job.state.is_terminal and not job.state.is_terminal:
        cancel_job(job.job_id, CANCELLED_BY, deps)
        job = _load_job(job.job_id, deps)
    if trial.state is TrialState.STOPPING and not job.state.is_terminal:
        _stop_early(trial, job.job_id, tuning_job, deps)
        job = _load_job(job.job_id, deps)
    _record_progress(trial, job, tuning_job, deps)


def _stop_early(trial: Trial, job_id: str, tuning_job: Job, deps: CreationDeps) -> None:
    """Stop the trial's own job for the reason that the tuning job's ledger has."""
    entry = deps.store.entry(tuning_job.job_id, TrialUnpromising.key_of(trial.number))
    event = entry.event if entry else None
    if not isinstance(event, TrialUnpromising):
        raise PermanentError(
            f"{tuning_job.job_id}: the ledger does not say why trial {trial.number} is to be"
            " stopped"
        )
    record(StopRequested(job_id, event.comparison, deps.clock()), deps)


def _load_or_create_job(trial: Trial, tuning_job: Job, deps: CreationDeps) -> Job:
    """Return the trial's own job. Create it if neither this nor another delivery has done so."""
    job_id = trial_id(tuning_job.job_id, trial.number)
    loaded = deps.store.load(job_id)
    if loaded is not None:
        return loaded.state.job
    now = deps.clock()
    record(JobSubmitted(trial_job(tuning_job, trial, now), now), deps)
    return _load_job(job_id, deps)


def _record_progress(trial: Trial, job: Job, tuning_job: Job, deps: CreationDeps) -> None:
    """Record in the tuning job what the trial's job has become.

    The tuning job is PREPARING and RUNNING as soon as its first trial is.
    """
    now = deps.clock()
    number = trial.number
    if tuning_job.state is JobState.QUEUED and job.state is not JobState.QUEUED:
        record(ProvisioningStarted(tuning_job.job_id, now), deps)
    if tuning_job.started_at is None and job.started_at is not None:
        record(AllReady(tuning_job.job_id, tuning_job.attempt, now), deps)
    if trial.started_at is None and job.started_at is not None:
        record(TrialStarted(tuning_job.job_id, number, job.started_at, now), deps)
    if job.state.is_terminal:
        record(_trial_ended(trial, job, tuning_job.job_id, now), deps)


def _trial_ended(trial: Trial, job: Job, tuning_job_id: str, now: datetime) -> TrialEnded:
    """Return how the trial ended.

    If it was stopped early, its last measurement that was read counts.
    """
    is_stopped = trial.state is TrialState.STOPPING and job.state is JobState.CANCELLED
    final = job.trial_of.measurement if job.trial_of else None
    return TrialEnded(
        tuning_job_id,
        trial.number,
        TrialState.STOPPED if is_stopped else TrialState(job.state.value),
        job.ended_at or now,
        now,
        trial.latest if is_stopped else final,
        (job.error_message or "") if job.state is JobState.FAILED else "",
    )


def _load_job(job_id: str, deps: CreationDeps) -> Job:
    loaded = deps.store.load(job_id)
    if loaded is None:
        raise PermanentError(f"there is no job {job_id}")
    return loaded.state.job


def on_message(message: Message, deps: CreationDeps, suggester: Suggester) -> None:
    handle(internal_requests.decode_tune(message.data), suggester, deps)
