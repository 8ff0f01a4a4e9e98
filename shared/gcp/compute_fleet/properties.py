"""What a bulk insert asks for: names, labels, metadata, account, network, reservation; the hardware is `machine`'s.

docs/interfaces.md sections 3 and 4 say what the labels and metadata mean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from google.cloud import compute_v1

from shared.core.model.job import Job, Plan
from shared.core.reconcile.machine_families import has_gpus
from shared.core.reconcile.plan import Create
from shared.gcp.compute_fleet import machine
from shared.gcp.compute_fleet.placement import policy_of
from shared.gcp.marks import labels

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
RESERVATION_KEY: Final = "compute.googleapis.com/reservation-name"
"""What a reservation is named under. Source: ReservationAffinity."""


@dataclass(frozen=True, slots=True)
class Site:
    """What is the same for all VMs of an installation. An empty `service_account` gives them none; `network` and
    `subnetwork` are partial or full URLs; `{region}` in the latter is the job's."""

    service_account: str
    network: str
    subnetwork: str


def resource(
    job: Job, create: Create, site: Site, metadata: Mapping[str, str]
) -> compute_v1.BulkInsertInstanceResource:
    """All or nothing: `min_count` is the count."""
    named = {name: compute_v1.BulkInsertInstanceResourcePerInstanceProperties(name=name) for name in create.names}
    return compute_v1.BulkInsertInstanceResource(
        count=len(create.names),
        min_count=len(create.names),
        per_instance_properties=named,
        instance_properties=_properties(job, create, site, metadata),
    )


def items(metadata: Mapping[str, str]) -> list[compute_v1.Items]:
    return [compute_v1.Items(key=key, value=value) for key, value in metadata.items()]


def _properties(job: Job, create: Create, site: Site, metadata: Mapping[str, str]) -> compute_v1.InstanceProperties:
    """Types and policies go by name, not by URL: these properties belong to no zone. Source: InstanceProperties."""
    plan, group = job.plan, create.group
    properties = compute_v1.InstanceProperties(
        machine_type=group.machine_type,
        labels=labels(job, create),
        metadata=compute_v1.Metadata(items=items({**metadata, **machine.driver_metadata(plan, group)})),
        disks=[machine.boot_disk(plan, group)],
        network_interfaces=[_network_interface(plan, site)],
        guest_accelerators=machine.accelerators(group),
        scheduling=machine.scheduling(plan, create),
        shielded_instance_config=machine.shielded(group),
    )
    if email := plan.service_account or site.service_account:
        properties.service_accounts = [compute_v1.ServiceAccount(email=email, scopes=[SCOPE])]
    if plan.reservation and _is_reserved(plan, create):
        properties.reservation_affinity = compute_v1.ReservationAffinity(
            consume_reservation_type="SPECIFIC_RESERVATION", key=RESERVATION_KEY, values=[plan.reservation]
        )
    if policy := policy_of(job, group, create.zone):
        properties.resource_policies = [policy]
    return properties


def _is_reserved(plan: Plan, create: Create) -> bool:
    """Spot VMs take no reservation. One is for one machine type: in a job with GPUs it is theirs."""
    return not create.spot and (has_gpus(create.group) or not any(has_gpus(group) for group in plan.groups))


def _network_interface(plan: Plan, site: Site) -> compute_v1.NetworkInterface:
    """No access configuration: no external address. A job's own network brings its own subnetworks."""
    if plan.network:
        return compute_v1.NetworkInterface(network=plan.network)
    if site.subnetwork:
        subnetwork = site.subnetwork.replace("{region}", plan.region)
        return compute_v1.NetworkInterface(network=site.network, subnetwork=subnetwork)
    return compute_v1.NetworkInterface(network=site.network)
