"""Placement policies: VMs of one task type that should be close to each other name one resource
policy.

A policy belongs to a job, a task type and a zone: VMs of several zones cannot share one, and a gang
may move to another zone. Its name is a function of these three. It is created right before the
first insert that names it, and deleted when the job has ended and its VMs are gone. It costs
nothing, but counts against a quota of the region. Source: Compute Engine "Placement policies
overview".
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from google.api_core import exceptions
from google.cloud import compute_v1

from trainmaster.core.model.installation import name_in_installation
from trainmaster.core.model.job import Job
from trainmaster.core.model.task_group import TaskGroup
from trainmaster.core.model.vm_names import NAME_LENGTH_MAX, job_hash, slug
from trainmaster.core.reconcile.machine_families import needs_compact_placement
from trainmaster.gcp import clients
from trainmaster.gcp.compute_fleet.errors import (
    FLEET_CHANGE,
    compute_errors,
    is_transient,
    name_exists,
    not_created,
    problem_of,
    problems_in,
    refused_call,
)
from trainmaster.gcp.compute_fleet.operations import Operations
from trainmaster.ports import Created, CreateOutcome, Pending

SETTLE_S: Final = 5.0
"""Longest wait for a policy: it is only a record, created in a second or two."""
_IN_USE: Final = "resourceInUseByAnotherResource"


def policy_name(job: Job, group: TaskGroup, zone: str) -> str | None:
    """Return the name of the group's policy in that zone. None: its VMs need none."""
    if not needs_compact_placement(group):
        return None
    head = name_in_installation("tm-")
    tail = f"-{job_hash(job.set_id)}-{group.task_type}-{zone.rpartition('-')[2]}"
    return head + slug(job.set_id, NAME_LENGTH_MAX - len(head) - len(tail)) + tail


class Placements:
    """The placement policies of one project, which put the VMs of a group close together.

    `endpoint` empty: Google's. Methods raise TemporaryError for transient errors, and RefusedError
    for calls that Google refuses, except `ensure`, which returns refusals.
    """

    def __init__(self, project: str, endpoint: str, operations: Operations) -> None:
        self._policies = clients.rest_client(compute_v1.ResourcePoliciesClient, endpoint)
        self._project = project
        self._operations = operations

    def close(self) -> None:
        self._policies.transport.close()

    def ensure(self, job: Job, group: TaskGroup, zone: str) -> CreateOutcome:
        """Create the group's policy if it needs one.

        Return Created if it exists or is not needed.
        """
        name = policy_name(job, group, zone)
        if name is None:
            return Created()
        policy = compute_v1.ResourcePolicy(
            name=name,
            description=f"Trainmaster: VMs of {job.job_id}",
            group_placement_policy=compute_v1.ResourcePolicyGroupPlacementPolicy(
                collocation="COLLOCATED"
            ),
        )
        region = _region_of(zone)
        with compute_errors(f"create the placement policy {name}"):
            try:
                operation = self._policies.insert_unary(
                    project=self._project,
                    region=region,
                    resource_policy_resource=policy,
                    **FLEET_CHANGE,
                )
            except exceptions.ClientError as error:
                if is_transient(error, problem_of(error)):
                    raise
                refusal = refused_call(error)
                return Created() if name_exists(refusal) else refusal
            finished = self._operations.in_region(region, operation, SETTLE_S)
        if finished is None:
            return Pending()
        first = next(problems_in(finished), None)
        return not_created(first) if first else Created()

    def release(self, job: Job) -> bool:
        """Delete all policies of the job.

        Return False if one is still being deleted, or used by a VM.
        """
        remaining = [
            name for region, name in sorted(_policies_of(job)) if not self._delete(region, name)
        ]
        return not remaining

    def _delete(self, region: str, name: str) -> bool:
        with compute_errors(f"delete the placement policy {name}"):
            try:
                operation = self._policies.delete_unary(
                    project=self._project, region=region, resource_policy=name, **FLEET_CHANGE
                )
            except exceptions.NotFound:
                return True
            except exceptions.BadRequest as error:
                if problem_of(error).code == _IN_USE:
                    return False
                raise
            finished = self._operations.in_region(region, operation, SETTLE_S)
        return finished is not None and not finished.error.errors


def _policies_of(job: Job) -> set[tuple[str, str]]:
    """Return region and name of all policies that the job may have: of each zone that it used, with
    the machines that its plan has there.
    """
    policies = set()
    for number, zone in enumerate(job.plan.where.zones):
        if zone not in job.zones_used:
            continue
        placed_job = replace(job, plan=job.plan.at(number))
        for group in placed_job.plan.groups:
            name = policy_name(placed_job, group, zone)
            if name is not None:
                policies.add((_region_of(zone), name))
    return policies


def _region_of(zone: str) -> str:
    return zone.rpartition("-")[0]
