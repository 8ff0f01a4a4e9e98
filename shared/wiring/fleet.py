"""Compute Engine and Cloud TPU: only `provision` may touch machines."""

from __future__ import annotations

from functools import cache

from shared.flows.provision import Machines, in_threads
from shared.gcp.addresses import DnsAddresses, EmulatorAddresses
from shared.gcp.compute_fleet import ComputeFleet
from shared.gcp.fleets import Fleets
from shared.ports import AddressBook, Fleet
from shared.settings import Addressing, settings
from shared.wiring.agent_archive import agent_files


@cache
def machines() -> Machines:
    values = settings()
    compute = ComputeFleet(
        project=values.project,
        endpoint=values.compute_endpoint,
        service_account=values.worker_service_account,
        network=values.network,
        subnetwork=values.subnetwork,
        wait_s=values.operation_wait_s,
    )
    fleet = Fleets(compute, _tpu_fleet() if values.tpu else None)
    return Machines(fleet, addresses(), values.project, agent_files(), in_threads)


def _tpu_fleet() -> Fleet:
    from shared.gcp.tpu_fleet import TpuFleet  # 0.2 s that only installations with TPUs pay

    values = settings()
    return TpuFleet(
        project=values.project,
        endpoint=values.tpu_endpoint,
        service_account=values.worker_service_account,
        network=values.network,
        subnetwork=values.subnetwork,
        wait_s=values.operation_wait_s,
    )


def addresses() -> AddressBook:
    values = settings()
    if values.addressing is Addressing.EMULATOR:
        return EmulatorAddresses(values.compute_endpoint)
    return DnsAddresses(values.project)
