"""Compact placement: VMs of one role that should stand close to each other name one resource policy.

A policy belongs to a job, a role and a zone: VMs of several zones cannot share one, and a gang may move. It is made
right before the first insert that names it, under a name that is a function of these three, and deleted when the job
has ended and its VMs are gone; what is made or gone already is as good. It costs nothing, but a region has a quota.
Source: Compute Engine "Placement policies overview".
"""

from __future__ import annotations

from typing import Any, Final

from google.api_core import exceptions
from google.cloud import compute_v1

from shared.core.model.job import Job, TaskGroup
from shared.core.reconcile.machine_families import goes_side_by_side
from shared.core.reconcile.plan import NAME_LENGTH_MAX, name_hash, slug
from shared.gcp.compute_fleet.operations import CALL_TIMEOUT_S, Operations
from shared.gcp.compute_fleet.refusals import is_transient, problem, problems, refused, trouble
from shared.ports import CapacityErrorKind, Created, CreateOutcome, Pending

SETTLE_S: Final = 5.0
"""How long a policy is waited for: it is only a record, made in a second or two."""
_IN_USE: Final = "resourceInUseByAnotherResource"


def policy_of(job: Job, group: TaskGroup, zone: str) -> str | None:
    """The name of the policy its VMs in that zone have; None where they need none."""
    if not goes_side_by_side(job.plan, group):
        return None
    tail = f"-{name_hash(job.job_id)}-{group.task_type}-{zone.rpartition('-')[2]}"
    return "tm-" + slug(job.job_id, NAME_LENGTH_MAX - len("tm-") - len(tail)) + tail


class Placements:
    """Of one project."""

    def __init__(self, project: str, options: dict[str, Any], operations: Operations) -> None:
        self._policies = compute_v1.ResourcePoliciesClient(**options)
        self._project, self._operations = project, operations

    def ensure(self, job: Job, group: TaskGroup, zone: str) -> CreateOutcome:
        """Created also where none is needed."""
        name = policy_of(job, group, zone)
        if name is None:
            return Created()
        policy = compute_v1.ResourcePolicy(
            name=name,
            description=f"Trainmaster: VMs of {job.job_id}",
            group_placement_policy=compute_v1.ResourcePolicyGroupPlacementPolicy(collocation="COLLOCATED"),
        )
        region = region_of(zone)
        with trouble(f"make the placement policy {name}"):
            try:
                operation = self._policies.insert_unary(
                    project=self._project, region=region, resource_policy_resource=policy, timeout=CALL_TIMEOUT_S
                )
            except exceptions.Conflict:
                return Created()
            except exceptions.ClientError as error:
                found = problem(error)
                if is_transient(error, found):
                    raise
                return refused(found, otherwise=CapacityErrorKind.DENIED)
            finished = self._operations.in_region(region, operation, SETTLE_S)
        if finished is None:
            return Pending()
        first = next(problems(finished), None)
        return refused(first) if first else Created()

    def release(self, job: Job) -> bool:
        """False: a policy is still being deleted, or a VM that has it is."""
        named = {
            (region_of(zone), name)
            for group in job.plan.groups
            for zone in job.plan.zones
            if (name := policy_of(job, group, zone))
        }
        left = [name for region, name in sorted(named) if not self._delete(region, name)]
        return not left

    def _delete(self, region: str, name: str) -> bool:
        with trouble(f"delete the placement policy {name}"):
            try:
                operation = self._policies.delete_unary(
                    project=self._project, region=region, resource_policy=name, timeout=CALL_TIMEOUT_S
                )
            except exceptions.NotFound:
                return True
            except exceptions.BadRequest as error:
                if problem(error).code == _IN_USE:
                    return False
                raise
            finished = self._operations.in_region(region, operation, SETTLE_S)
        return finished is not None and not finished.error.errors


def region_of(zone: str) -> str:
    return zone.rpartition("-")[0]
