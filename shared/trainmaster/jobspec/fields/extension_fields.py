"""Check what `trainmaster:` adds to a job: Spot VMs, reservation, boot image, cost, and gangs.

The VMs of a gang are requested together, and its replicas start together.
"""

from __future__ import annotations

import re
from dataclasses import replace
from decimal import Decimal
from typing import Final

from trainmaster.core.model.cap import Cap
from trainmaster.core.model.gang import required_replicas
from trainmaster.core.model.members import has_channel
from trainmaster.core.model.money import ZERO, Money
from trainmaster.core.model.plan import Elastic, Plan
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.saving import SaveOnNotice
from trainmaster.jobspec.fields.google_resources import PROJECT
from trainmaster.jobspec.formats.extension import (
    STILL_S,
    ElasticSpec,
    Extension,
    StallMode,
)
from trainmaster.jobspec.formats.placement import SpotUse
from trainmaster.jobspec.problems import FieldPath, Problems, quoted
from trainmaster.jobspec.reading.document_kinds import example_at
from trainmaster.jobspec.reading.field_names import EXTENSION, JOB_SPEC

LEAVE_OUT: Final = "leave it out"
_NAME: Final = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
_IMAGE: Final = re.compile(rf"{PROJECT}/global/images/(family/)?{_NAME}")
_TPU_SOFTWARE: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_CAP: Final = re.compile(r"(?P<amount>[0-9]{1,9}(?:\.[0-9]{1,2})?) ?(?P<currency>[A-Z]{3})")
_MEANT_CAP: Final = re.compile(
    r"\$? ?(?P<amount>[0-9]{1,9}(?:\.[0-9]{1,2})?) ?(?P<currency>[A-Za-z]{3})?\$?"
)
"""Amounts as people write them: `25`, `$25`, `25 usd`."""
_RESOURCE_ID: Final = re.compile(_NAME)
RESOURCE_KEEP_S: Final = 300
"""Seconds for which a job with `persistentResourceId` and without `keepMachines` keeps machines."""
_RESERVATION: Final = re.compile(rf"({PROJECT}/reservations/)?{_NAME}")


def check_extension(
    extension: Extension, problems: Problems, base: FieldPath = (EXTENSION,)
) -> None:
    """Check the fields whose values the plan takes as they are. `base`: where they are."""
    spot = extension.spot
    if spot.on_demand_after is not None and spot.use in (None, SpotUse.NONE):
        path: FieldPath = (*base, "spot", "onDemandAfter")
        problems.add_text(
            path, "is only for jobs on Spot VMs, and this job uses none", advice="use: workers"
        )
    reservation = extension.reservation
    if reservation is not None and not _RESERVATION.fullmatch(reservation):
        path = (*base, "reservation")
        problem = f"must be the name of a reservation, not {quoted(reservation)}"
        problems.add(path, problem, example=example_at(path))


def resolve_cap(requested: str | None, problems: Problems) -> Cap | None:
    """Return what the job may cost. Prices are not known here."""
    if requested is None:
        return None
    match = _CAP.fullmatch(requested)
    amount = Decimal(match["amount"]) if match else ZERO
    if match is None or amount == 0:
        path: FieldPath = (EXTENSION, "maxCost")
        problem = f"must be an amount above 0 and a currency, not {quoted(requested)}"
        meant = _MEANT_CAP.fullmatch(requested.strip())
        has_amount = meant is not None and Decimal(meant["amount"]) > 0
        example = example_at(path)
        if meant is not None and has_amount:
            example = f"{meant['amount']} {(meant['currency'] or 'USD').upper()}"
        problems.add(path, problem, example=example)
        return None
    return Cap(Money(amount, match["currency"]))


def check_boot_image(image: str, problems: Problems, *, has_tpu: bool) -> None:
    """Check the boot image of VMs.

    TPU VMs have no choice of one: for them it is Cloud TPU's software version.
    """
    path: FieldPath = (EXTENSION, "image")
    if has_tpu and not _TPU_SOFTWARE.fullmatch(image):
        rule = "must be a TPU software version for a job with TPU VMs"
        problems.add(path, f"{rule}, not {quoted(image)}", example="v2-alpha-tpuv6e")
    elif not has_tpu and not _IMAGE.fullmatch(image):
        rule = (
            "must be a boot image, projects/P/global/images/NAME or"
            " projects/P/global/images/family/NAME"
        )
        problems.add(path, f"{rule}, not {quoted(image)}", example=example_at(path))


def with_save_on_notice(plan: Plan, requested: SaveOnNotice | None, problems: Problems) -> Plan:
    """Return the plan with which programs save when the end of a VM is announced.

    Add a problem if a job requests `gang` whose agents have no channel to each other.
    """
    can_save_together = has_channel(plan)
    if requested is SaveOnNotice.GANG and not can_save_together:
        problem = (
            "cannot be gang for this job: only the members of a synchronous job on several VMs save"
            " together"
        )
        problems.add_text((EXTENSION, "saveOnNotice"), problem, advice="replica")
    default = SaveOnNotice.GANG if can_save_together else SaveOnNotice.REPLICA
    return replace(plan, saving=replace(plan.saving, on_notice=requested or default))


def with_stillness(plan: Plan, requested: StallMode | int | None, problems: Problems) -> Plan:
    """Return the plan with the time for which its programs may be still.

    A still program prints nothing, moves no bytes and computes hardly anything.

    Add a problem if `auto` is requested for a job whose agents cannot find out that all programs
    are still.
    """
    can_watch = has_channel(plan) or (len(plan.replica_ids) == 1 and not plan.tpu_zones)
    if requested is StallMode.AUTO and not can_watch:
        problem = (
            "cannot be auto for this job: only VMs without TPUs are watched, either all members of"
            " a synchronous job or the only replica"
        )
        problems.add_text((EXTENSION, "stallTimeout"), problem, advice="1800s")
    is_watched = can_watch and requested in (None, StallMode.AUTO)
    still_s = STILL_S if is_watched else None
    return replace(plan, watching=replace(plan.watching, still_s=still_s))


def with_kept_machines(
    plan: Plan, requested: int | None, resource: str | None, problems: Problems
) -> Plan:
    """Return the plan of a job that takes machines which an earlier job has kept, and keeps its own
    for a next job.

    Add a problem to a job that cannot. `resource`: the `persistentResourceId` of the job; None: it
    has none.
    """
    if requested is None and resource is None:
        return plan
    path: FieldPath = (EXTENSION, "keepMachines")
    if requested is None:
        path = (JOB_SPEC, "persistentResourceId")
        requested = RESOURCE_KEEP_S
    if resource is not None and not _RESOURCE_ID.fullmatch(resource):
        problems.add_text(
            (JOB_SPEC, "persistentResourceId"),
            "must have lower-case letters, digits and hyphens, begin with a letter, and be at most"
            " 63 characters long",
            advice="my-resource",
        )
    if plan.tpu_zones:
        problems.add_text(path, "cannot be used with TPUs: only VMs are kept", advice=LEAVE_OUT)
    elif plan.limits.cap:
        problem = "cannot be combined with maxCost: kept machines cost money after the job's end"
        problems.add_text(path, problem, advice=LEAVE_OUT)
    return replace(plan, keep_s=requested, persistent_resource=resource)


def with_elastic(plan: Plan, requested: ElasticSpec | None, problems: Problems) -> Plan:
    """Return the plan of a job that may go on with fewer members.

    Add a problem to a job that cannot.
    """
    if requested is None or not plan.groups:
        return plan
    path: FieldPath = (EXTENSION, "elastic")
    size = len(plan.replica_ids)
    least = requested.min_replicas
    outside_gang = {group.task_type for group in plan.groups} & {TaskType.PS, TaskType.EVALUATOR}
    if plan.tpu_zones:
        problems.add_text(
            path, "cannot be used with TPUs: all slices of a job train together", advice=LEAVE_OUT
        )
    elif plan.restarts.independent or not plan.restarts.gang or outside_gang:
        if TaskType.PS in outside_gang:
            what = "parameter servers"
        elif outside_gang:
            what = "evaluators"
        else:
            what = "such replicas"
        problem = (
            f"is for replicas that train together; with {what}, `gang: false` lets the job run with"
            " fewer"
        )
        instead = "independentReplicas, gang or elastic, one of them"
        if outside_gang:
            instead = "gang: false"
        problems.add_text(path, problem, advice=instead)
    elif plan.restarts.restart_job_on_worker_restart:
        problem = (
            "cannot be combined with restartJobOnWorkerRestart: then the loss of any VM reruns the"
            " whole job"
        )
        problems.add_text(path, problem, advice="restartJobOnWorkerRestart: false")
    elif size == 1:
        problems.add_text(path, "needs several replicas, and this job has one", advice=LEAVE_OUT)
    elif least is None or not 1 <= least < size:
        given = "is required" if least is None else f"is {least}"
        problem = (
            f"{given}; it must be from 1 to {size - 1}, because the job has {size} replicas, with"
            " the primary"
        )
        problems.add((*path, "minReplicas"), problem, example=max(size // 2, 1))
    else:
        elastic = Elastic(least, requested.after or 0)
        return replace(plan, restarts=replace(plan.restarts, elastic=elastic))
    return plan


def check_gang(plan: Plan, problems: Problems) -> None:
    """Refuse `gang: false` for TPU slices, and for a job whose replicas all need each other.

    Rule: `core.model.gang`.
    """
    path: FieldPath = (EXTENSION, "gang")
    if plan.restarts.gang or not plan.groups:
        return
    if any(group.tpu for group in plan.groups):
        problems.add_text(
            path,
            "cannot be false for a job with TPU slices, which start together",
            advice="gang: true",
        )
    elif len(required_replicas(plan)) == len(plan.replica_ids):
        problem = (
            "cannot be false for this job, which has neither parameter servers nor evaluators: its"
            " workers train synchronously and wait for each other, so VMs that came first would be"
            " paid for without any progress"
        )
        problems.add_text(
            path, problem, advice="independentReplicas: true, if no replica waits for another"
        )
