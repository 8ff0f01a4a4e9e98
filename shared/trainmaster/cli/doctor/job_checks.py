"""Checks of one job before it is submitted: what it would lack.

Nothing is created, and no VM is requested.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final

from trainmaster.cli.doctor.file_checks import SEE, finding_of
from trainmaster.cli.doctor.findings import (
    Finding,
    Status,
    limit,
    not_checked,
    ok,
    permissions,
    problem,
)
from trainmaster.cli.doctor.program_checks import check_programs
from trainmaster.cli.doctor.remedies import ASK_FOR_API
from trainmaster.cli.installation import open_store
from trainmaster.core.model.capacity import candidate_words
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.core.rules.admission_queue import limit_problem, queued_jobs, vcpus
from trainmaster.cost.job_cost import hourly_cost
from trainmaster.cost.price_list import TOO_OLD_DAYS, PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.errors import TemporaryError
from trainmaster.flows.job_creation.intake import new_job, with_checked_places
from trainmaster.flows.job_creation.resource_checks import (
    found_resources,
    transfers,
    with_resources,
)
from trainmaster.gcp.errors import USER_ERRORS
from trainmaster.gcp.tools.inspection import Inspection
from trainmaster.jobspec.accept import AcceptedSpec, accept
from trainmaster.jobspec.job_document import job_id_of
from trainmaster.jobspec.problems import InvalidJob, Problem
from trainmaster.ports import Objects
from trainmaster.presentation.cost_view import money_words
from trainmaster.presentation.durations import HOUR_S
from trainmaster.settings import Settings

UPDATE: Final = "run `trainmaster prices update`"
SUBMIT_PERMISSIONS: Final = ("aiplatform.customJobs.create",)
"""Permission on the project that a caller of the API needs to create a job."""
NO_PRICES: Final = Unknown(f"Trainmaster has no price list: {UPDATE}")
UNKNOWN_WAIT: Final = (
    "neither Compute Engine nor Cloud TPU says in advance how long a zone lacks capacity"
)
_SHARED_QUOTA: Final = ("e2", "f1", "g1", "n1")
"""Machine series whose vCPUs count in the quota CPUS; others have SERIES_CPUS.

Source: "Allocation quotas".
"""


def check_job(
    document: Mapping[str, Any],
    inspection: Inspection,
    values: Settings,
    prices: PriceList | Unknown = NO_PRICES,
    staged: Objects | None = None,
) -> Iterator[Finding]:
    """Yield what a job with a valid document would lack, and its price.

    `staged`: packages that are not uploaded.
    """
    spec = accept(document, default_job_id=None, regions=values.regions)
    from trainmaster.wiring.objects import objects

    spec, wrong_place = with_checked_places(
        spec, values.regions, lambda: prices, datetime.now(UTC), values.limits, objects
    )
    yield from _check_region(spec, wrong_place, inspection)
    granted = inspection.api_permissions(SUBMIT_PERMISSIONS)
    what = "your permission to create the job"
    yield permissions(SUBMIT_PERMISSIONS, granted, what, ASK_FOR_API)
    yield from _check_resources(spec, staged)
    yield from _check_limits(spec, values)
    yield from _check_candidates(spec.plan, inspection, prices)
    currency = "" if isinstance(prices, Unknown) else prices.currency
    yield from _check_transfers(spec, transfers(spec, objects, prices), currency)
    cap = spec.plan.limits.cap
    if cap and cap.rates:
        yield ok(
            f"trainmaster.maxCost: all machines together run {cap.longest_s / HOUR_S:.1f} hours at"
            f" most for {cap}"
        )
    yield not_checked("waiting time", UNKNOWN_WAIT)


def check_job_id(document: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield whether a job has the id; nothing if the document has none."""
    job_id = job_id_of(document)
    used = open_store().load(job_id) if job_id else None
    if used is not None:
        yield problem(
            f"jobId: a job with this id already exists; {job_id} is {used.state.job.state}",
            f"choose another one, for example {job_id}_{{time}}",
        )
    elif job_id:
        yield ok(f"jobId: no job has the id {job_id}")


def _check_region(
    spec: AcceptedSpec, wrong_place: Problem | None, inspection: Inspection
) -> Iterator[Finding]:
    if wrong_place:
        yield finding_of(wrong_place)
        return
    missing = [region for region in spec.plan.where.regions if inspection.quotas(region) is None]
    if missing:
        yield problem(
            f"there is no region {missing[0]}", "choose one of `gcloud compute regions list`"
        )
    elif not spec.plan.where.options:
        where = spec.plan.where
        yield ok(f"region {where.region}; zones, in this order: {', '.join(where.zones)}")


def _check_resources(spec: AcceptedSpec, staged: Objects | None) -> Iterator[Finding]:
    """Look up what the job names, with the user's credentials.

    The functions repeat it with their own.
    """
    from trainmaster.wiring.intake_deps import resources
    from trainmaster.wiring.objects import objects

    try:
        # `check_programs` opens larger packages, too.
        checked = with_resources(spec, objects, resources, opens_packages=False)
        programs = list(check_programs(spec.plan, objects(), staged))
    except InvalidJob as invalid:
        yield from map(finding_of, invalid.problems)
        return
    except (TemporaryError, *USER_ERRORS) as error:
        yield not_checked("packages, buckets, images, account and secrets", str(error))
        return
    notes = [
        note
        for note in checked.plan.origin.substitutions
        if note not in spec.plan.origin.substitutions
    ]
    for note in notes:
        yield limit(f"{note.field}: {note.reason}", SEE)
    found = found_resources(spec, notes)
    if found:
        yield ok(f"found: {', '.join(found)}")
    yield from programs


def _check_limits(spec: AcceptedSpec, values: Settings) -> Iterator[Finding]:
    over_limit = limit_problem(spec.plan, values.limits)
    if over_limit:
        yield problem(over_limit, "raise TRAINMASTER_LIMITS, or request less")
    elif values.limits and spec.tuning is None:
        job = new_job(
            replace(spec, job_id=spec.job_id or "this job"), submission="", now=datetime.now(UTC)
        )
        try:
            waits = queued_jobs((*open_store().live_jobs().jobs, job), values.limits)
        except USER_ERRORS as error:
            yield not_checked("limits of all jobs", str(error))
            return
        wait = next((wait for wait in waits if wait.job_id == job.job_id), None)
        if wait is None:
            yield ok("limits of all jobs: nothing must end before the job starts")
        else:
            text = f"limits of all jobs: {wait.sentence}"
            yield limit(text, "the job waits; or raise TRAINMASTER_LIMITS")


def _check_candidates(
    plan: Plan, inspection: Inspection, prices: PriceList | Unknown
) -> Iterator[Finding]:
    """Yield quotas and prices.

    For a job with alternatives: the price of each candidate (a zone of an alternative) in the order
    of requests, and the quotas of each region of each alternative.
    """
    if not plan.where.options:
        yield from _check_quotas(plan, inspection)
        yield from check_price(plan, _machines(plan), prices)
        return
    regions: dict[tuple[int, str], Plan] = {}
    notes: list[Finding] = []  # about the price list: the same for all candidates
    in_order = sorted(
        range(len(plan.where.candidates)), key=lambda number: plan.where.candidates[number].rank
    )
    for position, number in enumerate(in_order, start=1):
        placed = plan.at(number)
        option = plan.where.candidates[number].option
        regions.setdefault((option, placed.where.region), placed)
        name = f"candidate {position}"
        after_s = plan.where.options[option].after_s
        if after_s:
            name += f" after {after_s} s"
        name += f" (alternative {option + 1}, {candidate_words(plan, number)})"
        price, *notes = check_price(placed, name, prices)
        yield price
    yield from notes
    findings = [
        finding
        for (option, _), placed in regions.items()
        for finding in _check_quotas(placed, inspection, f" (alternative {option + 1})")
    ]
    # Several alternatives may be in a region that reports no quotas.
    for finding in dict.fromkeys(findings):
        # The job can use another region.
        is_problem = finding.status is Status.FIX
        yield replace(finding, status=Status.LIMIT) if is_problem else finding


def _check_transfers(
    spec: AcceptedSpec, price_by_region: Mapping[str, Decimal | Unknown], currency: str
) -> Iterator[Finding]:
    """Yield what a start costs besides the machines: the transfer of data to each region."""
    gib = (spec.data and spec.data.gib) or "?"
    for region, price in price_by_region.items():
        what = f"transfer of {gib} GiB of data to {region}"
        if isinstance(price, Unknown):
            yield not_checked(what, price.reason)
        else:
            yield ok(f"{what}: {money_words(price, currency)} per start")
    if len(spec.plan.where.regions) > 1:
        yield not_checked("transfer of images and checkpoints", "their sizes are not known")


def _check_quotas(plan: Plan, inspection: Inspection, alternative: str = "") -> Iterator[Finding]:
    """Compare what the job needs with what is left.

    `alternative`: words about the part of the job that needs it; empty: all of it. Compute Engine
    does not list the quotas of TPUs.
    """
    quotas = {quota.metric: quota for quota in inspection.quotas(plan.where.region) or ()}
    needs = quota_needs(plan)
    if not quotas:
        yield not_checked(
            f"quotas of {plan.where.region}",
            "Compute Engine reports none (the local stack has none)",
        )
    for metric, needed in sorted(needs.items()):
        quota = quotas.get(metric)
        if quota is None:
            continue
        text = (
            f"quota {metric} in {plan.where.region}{alternative}: the job needs {needed:g}, and"
            f" {quota.limit - quota.used:g} of {quota.limit:g} are left"
        )
        if needed > quota.limit:
            yield problem(
                text,
                "the job would wait indefinitely: request a higher quota, or fewer or other"
                " machines",
            )
        elif needed > quota.limit - quota.used:
            yield limit(text, "the job waits until other VMs are deleted")
        else:
            yield ok(text)


def quota_needs(plan: Plan) -> Counter[str]:
    """Return what the job's VMs together use of Compute Engine's regional quotas, by metric."""
    needs: Counter[str] = Counter()
    for group in plan.groups:
        if group.tpu:
            continue
        needs["INSTANCES"] += group.count
        needs[_cpu_metric(group)] += group.count * vcpus(group.machine_type)
        if group.accelerator:
            needs[_gpu_metric(group)] += group.count * group.accelerator.count
        if group.boot_disk_type == "pd-ssd":
            needs["SSD_TOTAL_GB"] += group.count * group.boot_disk_gib
    return needs


def _cpu_metric(group: TaskGroup) -> str:
    series = group.machine_type.partition("-")[0]
    return "CPUS" if series in _SHARED_QUOTA else f"{series.upper()}_CPUS"


def _gpu_metric(group: TaskGroup) -> str:
    """Return the quota metric of a GPU: `NVIDIA_T4_GPUS` for `nvidia-tesla-t4`.

    The way of purchase may put a prefix before it: Spot VMs use `PREEMPTIBLE_NVIDIA_T4_GPUS`.
    """
    gpu_type = group.accelerator.type if group.accelerator else ""
    name = gpu_type.removeprefix("nvidia-").removeprefix("tesla-")
    metric = f"NVIDIA_{name.upper().replace('-', '_')}_GPUS"
    return group.purchase.price.quota_prefix + metric


def _machines(plan: Plan) -> str:
    """Return the machines of the job in words: `1 x n1-standard-4, 2 x n1-standard-8`."""
    return ", ".join(
        f"{group.count} x {group.tpu.type if group.tpu else group.machine_type}"
        for group in plan.groups
    )


def check_price(plan: Plan, machines: str, prices: PriceList | Unknown) -> Iterator[Finding]:
    """Yield the price of the job's machines per hour and at most, and then notes about the list.

    `machines`: the machines in words.
    """
    what = f"price of {machines}"
    if isinstance(prices, Unknown):
        yield not_checked(what, prices.reason)
        return
    hourly = hourly_cost(plan, prices)
    if isinstance(hourly, Unknown):
        yield not_checked(what, hourly.reason)
        return
    highest = hourly * Decimal(plan.limits.max_running_s) / HOUR_S
    cap = plan.limits.cap
    if cap and cap.limit.amount < highest:
        end = f"{cap} at most, by trainmaster.maxCost"
    else:
        end = f"{money_words(highest, prices.currency)} if it runs until its maxRunningTime"
    yield ok(
        f"{what}: {money_words(hourly, prices.currency)} per hour, {end}; list prices of"
        f" {prices.fetched_at:%Y-%m-%d}"
    )
    if prices.is_old(datetime.now(UTC)):
        yield limit(f"the price list is older than {TOO_OLD_DAYS} days", UPDATE)
