"""Measurements of trials that run, and trials that are stopped early, through the flows and the
sweep.
"""

from __future__ import annotations

from typing import Any

from tests.support.jobs import CHIEF, a_tuning_spec
from tests.support.study import Study
from trainmaster.core.decisions import Reason
from trainmaster.core.model.tuning import Measurement
from trainmaster.core.model.vm import Vm
from trainmaster.core.reporting.explain import condense
from trainmaster.errors import TemporaryError
from trainmaster_local.memory.fleet import MemoryFleet

ON_A_SLICE = {
    "scaleTier": "CUSTOM",
    "masterType": "cloud_tpu",
    "masterConfig": {"acceleratorConfig": {"type": "TPU_V3", "count": 8}},
}
UNPROMISING = -0.5
"""The suggester of these tests gives up running trials with a negative value."""


def start(study: Study, **hyperparameters: Any) -> None:
    study.start_tuning(**{"enableTrialEarlyStopping": True, **hyperparameters})
    study.report_ready(1, 2)


def reconcile(study: Study) -> None:
    """Let a minute pass, and the sweep request a reconciliation of every job."""
    study.wait(60)
    study.sweep()
    study.deliver()
    study.check()


def test_measurements_of_running_trials_are_stored_with_one_ledger_entry_for_all(
    study: Study,
) -> None:
    start(study)
    study.write_metric(1, 0.2, 0.4)
    study.write_metric(2, 0.3)
    reconcile(study)
    first, second = study.tuning.trials
    assert first.reported == (Measurement(value=0.2, step=100), Measurement(value=0.4, step=200))
    assert (first.latest, first.measurement) == (Measurement(value=0.4, step=200), None)
    assert second.latest == Measurement(value=0.3, step=100)
    entries = [entry for entry in study.ledger if entry.decision.reason is Reason.TRIALS_MEASURED]
    assert [entry.decision.text for entry in entries] == [
        "Running trials report accuracy: trial 1 0.4 at step 200, trial 2 0.3 at step 100."
    ]
    reconcile(study)
    assert (
        len([entry for entry in study.ledger if entry.decision.reason is Reason.TRIALS_MEASURED])
        == 1
    ), "no news"


def test_long_series_of_measurements_is_condensed(study: Study) -> None:
    start(study)
    values: list[float] = []
    for minute in range(5):
        values.append(minute / 10)
        study.write_metric(1, *values)
        reconcile(study)
    left_out_before = [
        left_out
        for entry, left_out in condense(study.ledger)
        if entry.decision.reason is Reason.TRIALS_MEASURED
    ]
    assert left_out_before == [0, 3], "of five entries, the first and the last one are shown"


def test_unpromising_trial_is_stopped_and_the_next_one_begins(study: Study) -> None:
    start(study)
    study.write_metric(1, UNPROMISING)
    study.write_metric(2, 0.5)
    reconcile(study)
    assert study.states == ["STOPPED", "RUNNING", "QUEUED"]
    stopped = study.tuning.trials[0]
    assert (stopped.measurement, stopped.ended_at) == (
        Measurement(UNPROMISING, 100),
        study.trial(1).job.ended_at,
    )
    assert study.trial(1).find_vm(CHIEF) is None, "its VM is deleted"
    job = study.trial(1).job
    assert (job.state, job.error_message) == (
        "CANCELLED",
        "Trial is stopped early by its tuning job: -0.5 is negative.",
    )
    texts = [entry.decision.text for entry in study.ledger]
    assert "Trial 1 is stopped early: -0.5 is negative." in texts
    assert "Trial 1 was stopped early with accuracy -0.5 at step 100." in texts


def test_stopped_trial_counts_as_completed(study: Study) -> None:
    start(study, maxTrials=2)
    study.write_metric(1, UNPROMISING)
    reconcile(study)
    study.complete_trial(2, 0.5)
    reconcile(study)
    assert (study.state, study.states) == ("SUCCEEDED", ["STOPPED", "SUCCEEDED"])
    assert study.fleet.list_all() == ()
    assert study.store.jobs_with_pending() == ()


def test_trial_is_not_stopped_unless_the_job_asks_for_it(study: Study) -> None:
    start(study, enableTrialEarlyStopping=False)
    study.write_metric(1, UNPROMISING)
    reconcile(study)
    assert study.states == ["RUNNING", "RUNNING"]
    assert study.tuning.trials[0].latest == Measurement(UNPROMISING, 100)


def test_measurements_of_an_earlier_attempt_are_ignored(study: Study) -> None:
    start(study)
    study.write_metric(1, 0.5, attempt=2)
    reconcile(study)
    assert study.tuning.trials[0].reported == ()


def test_text_that_a_program_wrote_is_ignored(study: Study) -> None:
    start(study)
    vm = study.trial(1).vm(CHIEF)
    study.fleet.report_metric(vm.name, '{"attempt": 1, "measurements": [[1, "much"]]}')
    study.write_metric(2, 0.5)
    reconcile(study)
    assert [trial.reported for trial in study.tuning.trials] == [
        (),
        (Measurement(value=0.5, step=100),),
    ]


class LimitedFleet(MemoryFleet):
    """Refuses the first reading of a metric, and every second one after it."""

    reads = 0

    def reported_metric(self, vm: Vm) -> str | None:
        self.reads += 1
        if self.reads % 2:
            raise TemporaryError("rateLimitExceeded")
        return super().reported_metric(vm)


def test_rate_limit_leaves_a_reading_to_a_later_look() -> None:
    study = Study(fleet=LimitedFleet())
    start(study, maxTrials=3, maxParallelTrials=3)
    study.report_ready(3)
    for number in (1, 2, 3):
        study.write_metric(number, 0.5)
    reconcile(study)
    assert [bool(trial.reported) for trial in study.tuning.trials] == [False, True, False]
    reconcile(study)
    assert [bool(trial.reported) for trial in study.tuning.trials] == [True, True, True]


class TpuOnlyFleet(MemoryFleet):
    """Reads metrics of TPU nodes only, as Cloud TPU does."""

    def reported_metric(self, vm: Vm) -> str | None:
        assert vm.is_tpu, f"{vm.name} would be read from Compute Engine"
        return super().reported_metric(vm)


def test_unpromising_trial_on_a_tpu_slice_is_stopped() -> None:
    study = Study(fleet=TpuOnlyFleet())
    study.submit(a_tuning_spec(ON_A_SLICE, enableTrialEarlyStopping=True))
    study.deliver()
    study.report_ready(1, 2)
    study.write_metric(1, UNPROMISING)
    study.write_metric(2, 0.5)
    reconcile(study)
    assert study.states == ["STOPPED", "RUNNING", "QUEUED"]
    assert study.tuning.trials[1].reported == (Measurement(value=0.5, step=100),)


def test_trial_that_completes_before_it_is_stopped_has_succeeded(study: Study) -> None:
    start(study)
    study.write_metric(1, UNPROMISING)
    study.send_from_trial(
        1, "replica-exit", cause="process", exit_status=0, metric={"value": 0.9, "step": 300}
    )
    reconcile(study)
    assert study.states[0] == "SUCCEEDED"
    assert study.tuning.trials[0].measurement == Measurement(value=0.9, step=300)


def test_final_measurement_of_a_completed_trial_keeps_its_curve(study: Study) -> None:
    start(study)
    study.write_metric(1, 0.2, 0.4)
    reconcile(study)
    study.complete_trial(1, 0.6)
    trial = study.tuning.trials[0]
    assert (trial.measurement, len(trial.reported)) == (Measurement(value=0.6, step=100), 2)


def test_healthy_tuning_job_is_read_only_when_the_sweep_asks(study: Study) -> None:
    start(study)
    study.write_metric(1, 0.2)
    study.report_ready(1)
    study.deliver()
    assert study.tuning.trials[0].reported == ()
