"""The request of a bulk insert: names, labels, metadata, account, network, reservation.

Hardware is in `hardware`.

The meaning of labels and metadata is documented in docs/interfaces.md, sections 3 and 4.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from google.cloud import compute_v1

from trainmaster.core.model.job import Job
from trainmaster.core.model.plan import Plan
from trainmaster.core.reconcile.steps import Create
from trainmaster.gcp.compute_fleet import hardware
from trainmaster.gcp.compute_fleet.placement import policy_name
from trainmaster.gcp.compute_fleet.purchase_requests import purchase_request
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster.gcp.vm_labels import labels

SCOPE: Final = "https://www.googleapis.com/auth/cloud-platform"
RESERVATION_KEY: Final = "compute.googleapis.com/reservation-name"
"""Key under which a VM names its reservation. Source: ReservationAffinity."""


def resource(
    job: Job, create: Create, defaults: VmDefaults, metadata: Mapping[str, str]
) -> compute_v1.BulkInsertInstanceResource:
    """Return the request for all VMs of `create`.

    `min_count` is the number of VMs, so that all or none are created; for a partial create it is 1.
    """
    # The keys are the names; the field `name` is output only. Source: BulkInsertInstanceResource.
    per_vm = {
        name: compute_v1.BulkInsertInstanceResourcePerInstanceProperties() for name in create.names
    }
    return compute_v1.BulkInsertInstanceResource(
        count=len(create.names),
        min_count=1 if create.partial else len(create.names),
        per_instance_properties=per_vm,
        instance_properties=_properties(job, create, defaults, metadata),
    )


def items(metadata: Mapping[str, str]) -> list[compute_v1.Items]:
    """Return the metadata in the form in which requests have it."""
    return [compute_v1.Items(key=key, value=value) for key, value in metadata.items()]


def _properties(
    job: Job, create: Create, defaults: VmDefaults, metadata: Mapping[str, str]
) -> compute_v1.InstanceProperties:
    """Return what all VMs of `create` have in common.

    Types and policies are given by name, not by URL, because the properties are for any zone.
    Source: InstanceProperties.
    """
    plan = job.plan
    group = create.group
    purchase = purchase_request(create.price, group.machine_type)
    all_metadata = {**metadata, **hardware.driver_metadata(plan, group)}
    properties = compute_v1.InstanceProperties(
        machine_type=group.machine_type,
        labels=labels(job, create),
        metadata=compute_v1.Metadata(items=items(all_metadata)),
        disks=[hardware.boot_disk(plan, group, defaults.images)],
        network_interfaces=[_network_interface(plan, defaults)],
        guest_accelerators=hardware.accelerators(group),
        scheduling=hardware.scheduling(plan, create, purchase),
        shielded_instance_config=hardware.shielded_options(plan, group),
    )
    email = plan.access.service_account or defaults.service_account
    if email:
        properties.service_accounts = [compute_v1.ServiceAccount(email=email, scopes=[SCOPE])]
    if purchase.reservation is not None:
        properties.reservation_affinity = compute_v1.ReservationAffinity(
            consume_reservation_type="SPECIFIC_RESERVATION",
            key=RESERVATION_KEY,
            values=[purchase.reservation],
        )
    policy = policy_name(job, group, create.zone)
    if policy is not None:
        properties.resource_policies = [policy]
    return properties


def _network_interface(plan: Plan, defaults: VmDefaults) -> compute_v1.NetworkInterface:
    """Return the network interface.

    It has no access configuration, so the VM has no external address.
    """
    network, subnetwork = defaults.network_of(plan)
    if subnetwork:
        return compute_v1.NetworkInterface(network=network, subnetwork=subnetwork)
    return compute_v1.NetworkInterface(network=network)
