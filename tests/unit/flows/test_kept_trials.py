"""Trials of a tuning job take the machines of those that have ended.

Machine sets, their holders and tenures are explained in `tests.support.kept_jobs`.
"""

from __future__ import annotations

import json
from typing import Any

from tests.support.jobs import a_tuning_spec
from tests.support.kept_jobs import a_keeping_job, beat_all
from tests.support.study import Study
from trainmaster.core.events import TrialUnpromising
from trainmaster.core.model.machine_set import MachineSet, SetState
from trainmaster.flows.commit.record import record
from trainmaster.flows.user_requests import cancel_job
from trainmaster.messaging import topics
from trainmaster.messaging.internal_requests import TuneRequest, encode_tune


def start(study: Study, keep: str = "900s", **search: Any) -> None:
    """Submit a tuning job whose submitter nobody knows."""
    search = {"maxParallelTrials": 1, **search}
    spec = a_tuning_spec(**{"maxParallelTrials": 1, **search})
    study.submit({**spec, "trainmaster": {"keepMachines": keep}})
    study.deliver()


def run_trial(study: Study, number: int) -> str:
    """Run the trial. Return the instance id of its VM."""
    take_vms(study, number)
    study.report_ready(number)
    (vm,) = study.trial(number).vms
    complete(study, number, number / 10)
    return vm.instance_id


def complete(study: Study, number: int, value: float) -> None:
    """Complete the trial. Agents write heartbeats all the time."""
    for listed in study.fleet.list_all():
        study.fleet.beat(listed.vm.name)
    study.complete_trial(number, value)


def take_vms(study: Study, number: int) -> None:
    """From now on, the world of this trial shows the VM that it has taken."""
    study.set_ids[number] = study.trial(number).job.set_id


def machine_set(study: Study, number: int) -> MachineSet:
    loaded = study.store.load(study.trial(number).job_id)
    assert loaded is not None
    assert loaded.state.machine_set is not None
    return loaded.state.machine_set


def test_trials_run_one_after_another_on_one_vm_which_is_deleted_at_the_end(study: Study) -> None:
    start(study)
    assert study.job.machines is None, "a tuning job has no VMs of its own"
    ids = {run_trial(study, number) for number in (1, 2, 3)}
    assert study.state == "SUCCEEDED"
    assert len(ids) == 1
    assert [study.trial(number).job.tenure for number in (1, 2, 3)] == [1, 2, 3]
    assert study.fleet.list_all() == ()
    assert machine_set(study, 3).state is SetState.RELEASED
    reasons = [entry.decision.text for entry in study.trial(3).ledger]
    assert "The tuning job has ended: the kept machines are deleted." in reasons
    study.check()


def test_trials_that_run_together_have_machines_of_their_own(study: Study) -> None:
    start(study, maxParallelTrials=2)
    assert len(study.fleet.list_all()) == 2
    study.report_ready(1, 2)
    complete(study, number=2, value=0.5)
    assert study.trial(3).job.set_id == study.trial(2).job.set_id
    assert len(study.fleet.list_all()) == 2


def test_machines_of_a_trial_are_kept_for_two_minutes_at_most(study: Study) -> None:
    start(study)
    assert study.trial(1).job.plan.keep_s == 120
    assert study.job.plan.keep_s == 900


def test_other_tuning_job_does_not_take_them(study: Study) -> None:
    start(study, maxTrials=2)
    run_trial(study, 1)
    other = Study("other", study.now, study.store, study.bus, study.fleet)
    start(other, maxTrials=1)
    assert other.trial(1).job.set_id == "other-trial-1"


def test_tuning_job_called_none_releases_no_machines_of_other_jobs() -> None:
    """`none` is the word for a job that is no trial."""
    first = a_keeping_job()
    study = Study("none", first.now, first.store, first.bus, first.fleet)
    start(study, maxTrials=1)
    beat_all(first)
    run_trial(study, 1)
    assert study.state == "SUCCEEDED"
    assert [kept.machine_set.holder for kept in study.store.kept_machines()] == ["first"]


def test_cancelled_tuning_job_releases_what_its_trials_kept(study: Study) -> None:
    start(study, maxParallelTrials=2)
    study.report_ready(1, 2)
    cancel_job(study.job_id, "anna", study.deps)
    study.deliver()
    assert study.state == "CANCELLED"
    assert study.fleet.list_all() == ()
    assert not study.store.kept_machines()


def test_machines_of_a_trial_that_is_stopped_early_are_kept(study: Study) -> None:
    start(study)
    study.report_ready(1)
    unpromising = TrialUnpromising(study.job_id, 1, "worse than the others", study.now)
    record(unpromising, study.deps)
    study.bus.publish(topics.TUNE, encode_tune(TuneRequest(study.job_id)), {})
    for listed in study.fleet.list_all():
        study.fleet.beat(listed.vm.name)
    study.deliver()
    assert study.states == ["STOPPED", "QUEUED"]
    assert study.trial(2).job.set_id == study.trial(1).job.set_id


def test_measurements_of_the_trial_before_are_not_those_of_the_next(study: Study) -> None:
    """The guest attribute is the VM's, and stays."""
    start(study)
    take_vms(study, 1)
    study.report_ready(1)
    study.write_metric(1, 0.9)
    complete(study, number=1, value=0.9)
    take_vms(study, 2)
    study.report_ready(2)
    study.wait(60)
    study.sweep()
    study.deliver()
    assert not study.tuning.trials[1].reported
    (vm,) = study.trial(2).vms
    report = {"attempt": 1, "tenure": 2, "measurements": [[100, 0.4]]}
    study.fleet.report_metric(vm.name, json.dumps(report))
    study.wait(60)
    study.sweep()
    study.deliver()
    assert [report.value for report in study.tuning.trials[1].reported] == [0.4]
