"""Creation of stored jobs from job documents: for messages, uploaded files, the HTTP API and
trials.

    document ──► accept: form and fields ──► places, prices, packages, limits ──► record ──► job

A submission may be delivered twice, and a package or another resource that it names may be deleted
before the second delivery. Checks of such resources are left out if the job exists already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from trainmaster.core.events import JobSubmitted
from trainmaster.core.intake.named_resources import SETTING, AllowedResources
from trainmaster.core.model.job import Job, JobState, Label
from trainmaster.core.model.origin import Dialect
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.tuning import Tuning
from trainmaster.core.model.vm_names import vm_name
from trainmaster.core.reconcile.trial_jobs import results_to_resume
from trainmaster.core.rules.admission_queue import USD_PER_HOUR, Limits, limit_problem
from trainmaster.core.rules.lifecycle import is_same_submission
from trainmaster.core.rules.tuning import planned_trials
from trainmaster.cost.cap import CAP_ADVICE, with_hourly_cost, with_rates
from trainmaster.cost.job_cost import ranked_by_price
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.flows.commit.record import record
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.job_creation.gcs_folder import with_gcs_folder
from trainmaster.flows.job_creation.package_versions import with_algorithm_package
from trainmaster.flows.job_creation.resource_checks import ObjectsOf, transfers, with_resources
from trainmaster.jobspec.accept import AcceptedSpec, accept
from trainmaster.jobspec.problems import InvalidJob, Problem
from trainmaster.ports import JobQueries, States

PricesOf = Callable[[], PriceList | Unknown]
MACHINES_FIELDS: Final = {
    Dialect.AI_PLATFORM: "trainingInput",
    Dialect.VERTEX: "jobSpec.workerPoolSpecs",
}
"""Field of the document that names the machines."""
RESUMED_JOB_FIELDS: Final = {
    Dialect.AI_PLATFORM: "trainingInput.hyperparameters.resumePreviousJobId",
    Dialect.VERTEX: "trainmaster.resumePreviousJobId",
}


@dataclass(frozen=True, slots=True)
class Origin:
    """What is known about the submitter of a job."""

    through_api: bool = False
    submitted_by: str | None = None
    """E-mail address, if the API knows it."""


MESSAGE: Final = Origin()
"""A message: its publisher is not known."""


class JobExistsError(Exception):
    """The job id was already used by another submission. Job ids are never used again."""


class OverLimitError(Exception):
    """The job can never be admitted: it needs more than all jobs together may use."""


@dataclass(frozen=True, slots=True)
class Submission:
    """A job as it was submitted, and what is known about the submission."""

    document: Mapping[str, object]
    key: str
    """Identifies the submission, together with the content of the document."""
    at: datetime
    authorize: Callable[[AcceptedSpec], None]
    """Raises an error unless the submitter may create the job."""
    origin: Origin = MESSAGE
    default_job_id: str | None = None
    """That of a document without one; None: the document must name it."""


def create_job(submission: Submission, deps: CreationDeps) -> Job:
    """Store the job and return it. If the same submission was stored before, return that job.

    Errors are those of `checked_job`. Raises JobExistsError, too; nothing is stored after an error.
    """
    job = checked_job(submission, deps)
    recorded = record(JobSubmitted(job, submission.at), deps)
    first = recorded.entry.event
    if not isinstance(first, JobSubmitted) or not is_same_submission(first.job, job):
        raise JobExistsError(job.job_id)
    return first.job


def validated_job(submission: Submission, deps: CreationDeps) -> Job:
    """Return the job that `create_job` would store now, or raise its error. Nothing is stored."""
    job = checked_job(submission, deps)
    stored = deps.store.load(job.job_id)
    if stored is None:
        return job
    if not is_same_submission(stored.state.job, job):
        raise JobExistsError(job.job_id)
    return stored.state.job


def checked_job(submission: Submission, deps: CreationDeps) -> Job:
    """Return the job of the document as it can be stored, unless its id is used.

    Raises InvalidJob or OverLimitError.
    """
    spec = accept(
        submission.document, default_job_id=submission.default_job_id, regions=deps.regions
    )
    submission.authorize(spec)
    spec, wrong_place = with_checked_places(
        spec, deps.regions, deps.prices, submission.at, deps.limits, deps.objects
    )
    spec = with_gcs_folder(with_algorithm_package(spec, deps.algorithms), deps)
    job = new_job(_with_resources(spec, deps), submission.key, submission.at, submission.origin)
    _check_vm_names(job, deps.store)
    over_limit = limit_problem(spec.plan, deps.limits)
    if (job.tuning or over_limit or wrong_place) and deps.store.load(job.job_id) is None:
        if wrong_place:
            raise InvalidJob((wrong_place,))
        if job.tuning is not None:
            job = replace(
                job, tuning=resume_previous_tuning(job.tuning, job.plan.origin.dialect, deps.store)
            )
        if over_limit:
            raise OverLimitError(over_limit)
    return job


def check_allowed(spec: AcceptedSpec, allowed: AllowedResources) -> None:
    """Raise InvalidJob with all resources that only a job with a known submitter may name."""
    problems = [
        Problem(
            resource.field,
            f"names a {resource.kind.words}: submit the job through the API, as a user who may use"
            f" it, or let an administrator add {allowed.entry_for(resource)} to the setting"
            f" {SETTING}",
            example="leave it out",
        )
        for resource in spec.resources
        if not allowed.allow(resource)
    ]
    if problems:
        raise InvalidJob(problems)


def _check_vm_names(job: Job, store: JobQueries) -> None:
    """Raise InvalidJob if the job's VMs would have the names of another job's: each could act for
    the other.
    """
    owner = store.owner_of_vm(vm_name(job.job_id, job.plan.primary))
    if owner is not None and owner.set_id != job.job_id:
        problem = f"gives its VMs the names of the VMs of {owner.set_id}"
        raise InvalidJob((Problem("jobId", problem, example=f"{job.job_id}_2"),))


def _with_resources(spec: AcceptedSpec, deps: CreationDeps) -> AcceptedSpec:
    """Return the spec with its packages pinned and with notes about its resources.

    Raises InvalidJob for missing ones.

    A repeated submission is returned unchanged if something is missing: it may have been deleted
    since the first one.
    """
    try:
        return with_resources(spec, deps.objects, deps.resources)
    except InvalidJob:
        if spec.job_id is None or deps.store.load(spec.job_id) is None:
            raise
        return spec


def with_checked_places(
    spec: AcceptedSpec,
    regions: tuple[str, ...],
    prices_of: PricesOf,
    now: datetime,
    limits: Limits,
    objects: ObjectsOf = None,
) -> tuple[AcceptedSpec, Problem | None]:
    """Return the spec with what follows from prices, and a problem that a new job must not have.

    From prices follow the order of its alternatives (`placement.anyOf`), the rates by which the
    cost of a job with `maxCost` is bounded, and its cost per hour if all jobs together have a limit
    of that. The problem is returned, not raised: a repeated submission gets its stored job.
    """
    plan = spec.plan
    problem = region_problem(spec.plan, regions)
    if not plan.where.cheapest_first and plan.limits.cap is None and USD_PER_HOUR not in limits:
        return spec, problem
    prices = prices_of()
    has_different_machines = len({option.groups for option in plan.where.options}) > 1
    compares_prices = plan.where.cheapest_first and has_different_machines
    if compares_prices and isinstance(prices, Unknown):
        reason = f"compares prices, and this installation has none: {prices.reason}"
        problem = problem or Problem(
            "trainmaster.placement.anyOf", reason, example="ordered, in place of anyOf"
        )
    if plan.where.cheapest_first:
        plan = ranked_by_price(plan, prices, transfers(spec, objects, prices))
    limited = with_rates(plan, prices, now, spec.tuning.max_trials if spec.tuning else 1)
    if isinstance(limited, Unknown):
        problem = problem or Problem(
            "trainmaster.maxCost", f"cannot be kept: {limited.reason}", example=CAP_ADVICE
        )
        limited = plan
    if USD_PER_HOUR in limits:
        counted = with_hourly_cost(limited, prices)
        problem = problem or _hourly_problem(plan.origin.dialect, counted, limits[USD_PER_HOUR])
        limited = limited if isinstance(counted, Unknown) else counted
    return replace(spec, plan=limited), problem


def _hourly_problem(dialect: Dialect, counted: Plan | Unknown, limit: int) -> Problem | None:
    """Return why a job must not have these machines while all jobs together have a
    limit per hour.
    """
    allowed = f"the limit of all jobs, usd_per_hour, is {limit}"
    if isinstance(counted, Unknown):
        problem = f"has machines without a known price, and {allowed}: {counted.reason}"
        advice = (
            "machines of `trainmaster prices list`; `trainmaster prices update` makes a new list"
        )
    elif counted.limits.usd_per_hour > limit:
        problem = (
            f"has machines that cost up to {counted.limits.usd_per_hour:.2f} USD per hour at list"
            f" prices, and {allowed}"
        )
        advice = "fewer or cheaper machines, Spot VMs, or a higher limit in TRAINMASTER_LIMITS"
    else:
        return None
    return Problem(MACHINES_FIELDS[dialect], f"{problem}. Use {advice}", example=advice)


def region_problem(plan: Plan, regions: tuple[str, ...]) -> Problem | None:
    """Return the problem if the network has no subnetwork in one of the job's regions; None if it
    has.
    """
    outside = next(
        (region for region in (plan.where.region, *plan.where.regions) if region not in regions),
        None,
    )
    if not regions or plan.access.network is not None or outside is None:
        return None
    field = (
        "trainmaster.region" if plan.origin.dialect is Dialect.VERTEX else "trainingInput.region"
    )
    verb = "is"
    if outside != plan.where.region:
        number = next(
            number for number, zone in enumerate(plan.where.zones) if zone.startswith(f"{outside}-")
        )
        listed = "anyOf" if plan.where.cheapest_first else "ordered"
        field = f"trainmaster.placement.{listed}[{plan.where.candidates[number].option}]"
        verb = "has the region"
    problem = (
        f"{verb} {outside}, in which Trainmaster is not installed; Terraform's variable"
        " worker_regions adds regions"
    )
    return Problem(field, problem, example=" or ".join(sorted(regions)))


def new_job(spec: AcceptedSpec, submission: str, now: datetime, origin: Origin = MESSAGE) -> Job:
    """Return the job in its first state. The spec must have a job id."""
    if spec.job_id is None:
        raise ValueError("an accepted spec without a default job id must have a job id")
    return Job(
        job_id=spec.job_id,
        spec_json=spec.spec_json,
        submission=submission,
        plan=spec.plan,
        state=JobState.QUEUED,
        created_at=now,
        labels=tuple(Label(key, value) for key, value in sorted(spec.labels.items())),
        submitted_by=origin.submitted_by,
        through_api=origin.through_api,
        tuning=spec.tuning,
    )


def resume_previous_tuning(tuning: Tuning, dialect: Dialect, store: States) -> Tuning:
    """Add the results of the tuning job that this one resumes, if any.

    Raises InvalidJob if that is impossible.
    """
    if tuning.resumes is None:
        return tuning
    loaded = store.load(tuning.resumes)
    previous = loaded.state.job.tuning if loaded and loaded.state.job.deleted_at is None else None
    if previous is None:
        problem = f"names {tuning.resumes}, which is not a tuning job"
    elif _search(previous) != _search(tuning):
        problem = f"names {tuning.resumes}, which has other params, another goal or another metric"
    else:
        resumed = replace(tuning, earlier=results_to_resume(previous))
        if planned_trials(resumed) > 0:
            return resumed
        problem = f"names {tuning.resumes}, which has already tried every combination of values"
    raise InvalidJob((Problem(RESUMED_JOB_FIELDS[dialect], problem, example="leave it out"),))


def _search(tuning: Tuning) -> tuple[object, ...]:
    """Return what two tuning jobs must have in common for one to use the results of the other."""
    return tuning.parameters, tuning.goal, tuning.metric_tag
