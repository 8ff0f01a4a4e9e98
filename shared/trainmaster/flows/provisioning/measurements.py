"""Reading measurements of trials that run, within a reconciliation of their tuning job that the
sweep requests every minute.

    program ──► metric file ──► agent ──► guest attribute of the VM ──► this flow ──► one commit for
    all trials

A trial costs two reads of Firestore and one call of Compute Engine or Cloud TPU for each reading,
and no function of its own. All that was read together is one ledger entry of the tuning job.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial

from trainmaster.core.events import TrialsMeasured
from trainmaster.core.model.job import Job, tuning_of
from trainmaster.core.model.learning_curve import TrialReport
from trainmaster.core.model.replica import ReplicaState, replica_key
from trainmaster.core.model.tuning import trial_id
from trainmaster.core.model.vm import Vm, VmStatus
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.rules.early_stopping import new_measurements, trials_to_measure
from trainmaster.errors import TemporaryError
from trainmaster.flows.commit.record import Deps, record
from trainmaster.messaging.reported_metric import decode_reported_metric
from trainmaster.ports import Fleet, States

_log = logging.getLogger(__name__)


def record_measurements(
    tuning_job: Job,
    fleet: Fleet,
    run_all: Callable[[Sequence[Callable[[], None]]], None],
    deps: Deps,
) -> None:
    """Record what running trials have reported since the last reconciliation.

    Safe to repeat, and to run at the same time as another delivery. `run_all` is explained at
    `trainmaster.flows.provisioning.fleet_deps.FleetDeps`.
    """
    tuning = tuning_of(tuning_job)
    now = deps.clock()
    if tuning_job.state.is_terminal:
        return
    reports: dict[int, TrialReport] = {}
    due = trials_to_measure(tuning, now)
    run_all(
        [
            partial(_read, trial.number, tuning_job.job_id, fleet, deps.store, reports)
            for trial in due
        ]
    )
    changed = new_measurements(tuning, tuple(reports[number] for number in sorted(reports)))
    if changed:
        record(TrialsMeasured(tuning_job.job_id, tuning.rounds_measured + 1, changed, now), deps)


def _read(
    number: int, tuning_job_id: str, fleet: Fleet, store: States, reports: dict[int, TrialReport]
) -> None:
    """Add what the trial's program has reported to `reports`.

    After a rate limit, a later reconciliation adds it.
    """
    primary = _primary_vm(trial_id(tuning_job_id, number), store)
    if primary is None:
        return
    vm, tenure, attempt = primary
    try:
        text = fleet.reported_metric(vm)
    except TemporaryError as error:
        _log.info("the metric of %s is not read now: %s", vm.name, error)
        return
    metric = decode_reported_metric(text) if text else None
    is_of_trial = metric is not None and (metric.tenure, metric.attempt) == (tenure, attempt)
    if metric is not None and is_of_trial and metric.measurements:
        reports[number] = TrialReport(number, metric.measurements)


def _primary_vm(job_id: str, store: States) -> tuple[Vm, int, int] | None:
    """Return the VM of the trial's primary, its tenure and its attempt; None if its program is not
    running on a VM.

    The VM is not listed: its name, zone and id are stored, and no other field is needed to read
    from it.
    """
    loaded = store.load(job_id)
    if loaded is None or loaded.state.job.state.is_terminal:
        return None
    job = loaded.state.job
    primary = job.plan.primary
    loaded = store.load(job_id, replica_key(job.attempt, primary))
    replica = loaded.state.find(job.attempt, primary) if loaded else None
    if replica is None or replica.state is not ReplicaState.RUNNING or replica.instance_id is None:
        return None
    vm = Vm(
        vm_name(job.set_id, primary),
        job.zone,
        replica.instance_id,
        VmStatus.RUNNING,
        primary,
        replica.vm_generation,
        directive=None,
        fingerprint="",
        is_tpu=job.plan.group(primary.task_type).tpu is not None,
    )
    return vm, job.tenure, job.attempt
