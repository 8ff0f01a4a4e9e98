"""`trainmaster advise JOB`: what would make the job cheaper or quicker.

The advice follows from the job's own figures, and from the simulator.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trainmaster.cli.installation import open_store
from trainmaster.cli.job_output import find_job
from trainmaster.cli.jobs import read_report
from trainmaster.cli.options import JobId, OutputFormat, parse_duration
from trainmaster.cli.output import Format, complain, print_json, say
from trainmaster.core.model.job import Job, JobState
from trainmaster.cost.advice import Advice, checkpoint_advice, spot_rate_problem
from trainmaster.cost.checkpoint_times import Listing
from trainmaster.cost.job_cost import hourly_cost
from trainmaster.cost.measured_rates import MeasuredRates, measure
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.report import CostReport
from trainmaster.cost.sku import Unknown
from trainmaster.errors import PermanentError
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.job_document import with_job_id
from trainmaster.jobspec.reading.field_names import EXTENSION
from trainmaster.presentation.cost_view import money_words
from trainmaster_local.cli.simulate import run_simulation

if TYPE_CHECKING:
    from trainmaster_local.simulator.forecast import Forecast

HOUR_S: Final = 3600
DURATION_MIN_S: Final = 60.0
"""Shortest training that is simulated."""
MACHINE_HOURS_MAX: Final = 500
"""Machine-hours of a job above which its simulation takes minutes."""
RUNS_MIN: Final = 20
"""Fewest simulated runs: medians of fewer differ too much."""
RUNS_MAX: Final = 100
"""Most simulated runs of a short job."""
SIMULATED_HOURS: Final = 1_500
"""Machine-hours that all runs of one simulation have together: about five seconds."""
WORTH_CHANGING: Final = 0.05
"""Share of the time or cost that a change must save.

The medians of at most `RUNS_MAX` runs do not show smaller savings reliably.
"""
SPOT: Final = "Spot VMs"
"""Topics of the advice."""
RESTARTS: Final = "restart policy"


@dataclass(frozen=True, slots=True)
class Experiment:
    """A job to simulate, and the rates that were measured in its history."""

    job: Job
    rate: float
    """Losses of one VM per hour."""
    duration_s: float
    """Training without interruption."""
    checkpoint_s: float
    """Interval between checkpoints; 0: no work is ever lost."""
    runs: int

    def run(self, changes: Mapping[str, object], *, rate: float | None = None) -> Forecast:
        """Return the forecast of the job with these fields of its section `trainmaster` changed.

        `rate`: losses of one VM per hour; None: the measured rate. Raises PermanentError if a run
        finds a bug in Trainmaster.
        """
        from trainmaster_local.simulator.forecast import Assumptions

        document = _with_changes(self.job, changes)
        assumptions = Assumptions(
            self.rate if rate is None else rate, self.duration_s, self.checkpoint_s
        )
        return run_simulation(
            accept(document, default_job_id=None), document, assumptions, self.runs
        )


def _with_changes(job: Job, changes: Mapping[str, object]) -> dict[str, Any]:
    """Return the job's document under another id, with these fields of its section `trainmaster`
    changed.
    """
    document = with_job_id(json.loads(job.spec_json), "advised")
    return {**document, EXTENSION: {**document.get(EXTENSION, {}), **changes}}


def advise(
    job_id: JobId,
    save_time: Annotated[
        str, typer.Option(help="How long saving a checkpoint takes: 20s, 2m.", metavar="DURATION")
    ] = "",
    form: OutputFormat = Format.TABLE,
) -> None:
    """Advise on checkpoint interval, Spot VMs and restart policy, from the job's own losses and
    restarts.

    Quantities that the job's history does not contain are simulated with the measured rates. If
    there is too little data, the advice names what is missing.
    """
    store = open_store()
    job = find_job(store, job_id).job
    report = read_report(store.ledger(job_id))
    if report is None:
        reason = "its history has expired"
        if job.tuning:
            reason = "it is a tuning job: ask for one of its trials"
        raise PermanentError(f"there is no advice for {job_id}: {reason}")
    rates = _rates(job, report)
    save_s = parse_duration(save_time, "--save-time") if save_time else None
    advices = list(_advices(job, report, rates, save_s))
    if form is Format.JSON:
        print_json({"measured": asdict(rates), "advice": [asdict(advice) for advice in advices]})
        return
    for line in _rate_lines(rates):
        say(line)
    for advice in advices:
        say(f"{advice.topic}: {advice.text or f'no advice; missing: {advice.missing}'}")


def _rates(job: Job, report: CostReport) -> MeasuredRates:
    """Return what the job's history shows: losses, restarts and checkpoints.

    Lists the job's directory unless the report has done so.
    """
    from trainmaster.wiring.prices import checkpoint_times

    now = datetime.now(UTC)
    listing = report.listing or checkpoint_times().listing(job, now)
    checkpoints = listing.checkpoints if isinstance(listing, Listing) else ()
    return measure(job, report.spans, report.losses, checkpoints, now)


def _rate_lines(rates: MeasuredRates) -> Iterator[str]:
    """Yield the measured rates, in sentences."""
    hours = f"{rates.running_s / HOUR_S:.1f} hours of work"
    stops = f"{rates.interruptions} interruption{'' if rates.interruptions == 1 else 's'}"
    yield f"measured: {stops} in {hours}, {rates.checkpoints} checkpoints found"
    if rates.restart_s is not None:
        yield f"median time until all replicas run again: {rates.restart_s:.0f} s"
    if rates.spot_hours:
        yield f"Spot VMs: {rates.spot_losses} lost in {rates.spot_hours:.1f} hours"


def _advices(
    job: Job, report: CostReport, rates: MeasuredRates, save_s: float | None
) -> Iterator[Advice]:
    """Yield the advice on each topic. Simulates the job if its history is enough for it."""
    from trainmaster.wiring.price_list import price_list

    yield checkpoint_advice(rates, report.listing, save_s)
    experiment = _experiment(job, report, rates)
    if isinstance(experiment, str):
        yield from (Advice(topic, text="", missing=experiment) for topic in (SPOT, RESTARTS))
        return
    # As it was, on demand, and with the other restart policy.
    complain(f"simulating the job {3 * experiment.runs} times …")
    as_it_was = experiment.run({})
    yield _spot_advice(experiment, as_it_was, price_list())
    yield _restart_advice(experiment, as_it_was)


def _experiment(job: Job, report: CostReport, rates: MeasuredRates) -> Experiment | str:
    """Return what to simulate, or what is missing for it."""
    problem = spot_rate_problem(rates)
    if problem:
        return problem
    if job.state is not JobState.SUCCEEDED:
        return f"the end of the job: it is {job.state}, so how long its training takes is not known"
    machines = sum(group.count * group.hosts for group in job.plan.groups)
    machine_hours = machines * rates.running_s / HOUR_S
    if machine_hours > MACHINE_HOURS_MAX:
        return (
            f"a simulation: {machine_hours:.0f} machine-hours would take minutes. `trainmaster"
            " simulate` has no limit"
        )
    if rates.checkpoint_s is None and report.losses:
        return "the times of at least two checkpoints"
    lost_s = report.goodput.lost.at_most_s / machines
    rate = rates.spot_losses_per_hour or 0.0
    affordable_runs = int(SIMULATED_HOURS / max(machine_hours, 1.0))
    return Experiment(
        job=job,
        rate=rate,
        duration_s=max(rates.running_s - lost_s, DURATION_MIN_S),
        checkpoint_s=rates.checkpoint_s or 0.0,
        runs=max(RUNS_MIN, min(RUNS_MAX, affordable_runs)),
    )


def _spot_advice(experiment: Experiment, spot: Forecast, prices: PriceList | Unknown) -> Advice:
    """Compare the job as it was with the same job on on-demand VMs.

    On-demand VMs are assumed not to be lost.
    """
    plan = experiment.job.plan
    if isinstance(prices, Unknown):
        return Advice(SPOT, text="", missing=f"prices: {prices.reason}")
    on_demand_plan = accept(
        _with_changes(experiment.job, {"spot": "none"}), default_job_id=None
    ).plan
    spot_hourly = hourly_cost(plan, prices)
    if isinstance(spot_hourly, Unknown):
        return Advice(SPOT, text="", missing=f"prices: {spot_hourly.reason}")
    steady_hourly = hourly_cost(on_demand_plan, prices)
    if isinstance(steady_hourly, Unknown):
        return Advice(SPOT, text="", missing=f"prices: {steady_hourly.reason}")
    machines = sum(group.count * group.hosts for group in plan.groups)
    steady = experiment.run({"spot": "none"}, rate=0.0)
    spot_cost = Decimal(str(spot.vm_h.p50)) / machines * spot_hourly
    steady_cost = Decimal(str(steady.vm_h.p50)) / machines * steady_hourly
    figures = (
        f"{money_words(spot_cost, prices.currency)} and {spot.wall_h.p50:.1f} h with Spot VMs,"
        f" {money_words(steady_cost, prices.currency)} and {steady.wall_h.p50:.1f} h on demand"
        f" (medians of {experiment.runs} simulated runs)"
    )
    saved = 1 - spot_cost / steady_cost if steady_cost else Decimal(0)
    if saved >= Decimal(str(WORTH_CHANGING)):
        return Advice(SPOT, f"keep them: {figures}")
    return Advice(SPOT, f"use on-demand VMs: {figures}")


def _restart_advice(experiment: Experiment, as_it_was: Forecast) -> Advice:
    """Compare restarting one replica with restarting the whole job.

    `as_it_was`: the forecast with the job's own restart policy.
    """
    reruns = experiment.job.plan.restarts.restart_job_on_worker_restart
    other = experiment.run({"restartJobOnWorkerRestart": not reruns})
    names = {True: "rerun the whole job", False: "restart only the lost replica"}
    figures = (
        f"{names[reruns]}: {as_it_was.wall_h.p50:.2f} h, {_success(as_it_was):.0%} succeed;"
        f" {names[not reruns]}: {other.wall_h.p50:.2f} h, {_success(other):.0%} succeed"
        f" ({experiment.runs} simulated runs)"
    )
    is_quicker = other.wall_h.p50 < as_it_was.wall_h.p50 * (1 - WORTH_CHANGING)
    succeeds_more_often = _success(other) > _success(as_it_was)
    succeeds_as_often = _success(other) == _success(as_it_was)
    if succeeds_more_often or (succeeds_as_often and is_quicker):
        value = str(not reruns).lower()
        return Advice(RESTARTS, f"set trainmaster.restartJobOnWorkerRestart to {value}. {figures}")
    return Advice(RESTARTS, f"keep it. {figures}")


def _success(forecast: Forecast) -> float:
    """Return the share of the runs in which the job succeeded."""
    return forecast.states.get(JobState.SUCCEEDED.value, 0) / forecast.histories
