"""Compute Engine: only `provision` may touch machines."""

from __future__ import annotations

from functools import cache

from shared.flows.provision import Machines, in_threads
from shared.gcp.addresses import DnsAddresses, EmulatorAddresses
from shared.gcp.compute_fleet import ComputeFleet
from shared.ports import AddressBook
from shared.settings import Addressing, settings
from shared.wiring.agent_files import agent_files


@cache
def machines() -> Machines:
    values = settings()
    fleet = ComputeFleet(
        project=values.project,
        endpoint=values.compute_endpoint,
        service_account=values.worker_service_account,
        network=values.network,
        subnetwork=values.subnetwork,
        wait_s=values.operation_wait_s,
    )
    return Machines(fleet, addresses(), values.project, agent_files(), in_threads, limits=values.limits)


def addresses() -> AddressBook:
    values = settings()
    if values.addressing is Addressing.EMULATOR:
        return EmulatorAddresses(values.compute_endpoint)
    return DnsAddresses(values.project)
