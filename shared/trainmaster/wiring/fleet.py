"""Compute Engine and Cloud TPU, for the function `provision`: no other function may create or
delete VMs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Final

from trainmaster.flows.commit.record import Deps
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.gcp.addresses import DnsAddresses, EmulatorAddresses
from trainmaster.gcp.compute_fleet import ComputeFleet
from trainmaster.gcp.compute_fleet.advice import CapacityAdvisor
from trainmaster.gcp.fleets import Fleets
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster.ports import AddressBook, Fleet
from trainmaster.settings import Addressing, Settings, settings
from trainmaster.wiring.core_services import deps
from trainmaster.wiring.metrics import metric_reader

_AGENT: Final = Path(__file__).parents[1] / "agent"
THREADS: Final = 24
"""Calls of Google's APIs at the same time, at most."""
METRICS_OFF: Final = "off"
"""Value of the setting `metrics` of an installation that reads and writes no metrics."""


def run_in_threads(tasks: Sequence[Callable[[], None]]) -> None:
    """Run all tasks to their end, in parallel, and then raise the first error: a slow task delays
    no other.
    """
    with ThreadPoolExecutor(max_workers=THREADS) as pool:
        futures = [pool.submit(task) for task in tasks]
    for future in futures:
        future.result()


@cache
def provision_deps() -> Deps:
    """Return `deps` with Google's advice about capacity."""
    values = settings()
    advisor = CapacityAdvisor(values.project, endpoint=values.compute_endpoint)
    return replace(deps(), advisor=advisor)


@cache
def fleet_deps() -> FleetDeps:
    """Return the ports and settings that only `provision` uses."""
    values = settings()
    defaults = VmDefaults(
        project=values.project,
        service_account=values.worker_service_account,
        network=values.network,
        subnetwork=values.subnetwork,
        account_networks=values.account_networks,
        images=values.boot_images,
    )
    compute = ComputeFleet(
        defaults, endpoint=values.compute_endpoint, wait_s=values.operation_wait_s
    )
    fleet = Fleets(compute, _tpu_fleet(defaults) if values.tpu else None)
    metadata = _vm_metadata(values)
    reader = metric_reader() if values.metrics != METRICS_OFF else None
    return FleetDeps(fleet, addresses(), values.project, metadata, run_in_threads, metrics=reader)


def _vm_metadata(values: Settings) -> dict[str, str]:
    """Return the metadata that all VMs have. docs/interfaces.md, section 3."""
    metadata = dict(agent_files(values.agent))
    # Set on every VM, because the metadata of the project may enable it for VMs that do not set it.
    metadata["serial-port-logging-enable"] = str(values.serial_port_logging).upper()
    if values.package_index:
        metadata["trainmaster-package-index"] = values.package_index
    if values.gcsfuse:
        metadata["trainmaster-gcsfuse"] = values.gcsfuse
    if values.metrics != METRICS_OFF:
        metadata["trainmaster-metrics"] = values.metrics
    if values.ssh:
        # Without it, no login works: `block-project-ssh-keys` is set, and VMs have no keys of their
        # own.
        metadata["enable-oslogin"] = "TRUE"
    return metadata


def _tpu_fleet(defaults: VmDefaults) -> Fleet:
    from trainmaster.gcp.tpu_fleet import TpuFleet  # 0.2 s that only installations with TPUs pay

    values = settings()
    return TpuFleet(defaults, endpoint=values.tpu_endpoint, wait_s=values.operation_wait_s)


def addresses() -> AddressBook:
    """Return the addresses at which replicas reach each other."""
    values = settings()
    if values.addressing is Addressing.EMULATOR:
        return EmulatorAddresses(values.compute_endpoint)
    return DnsAddresses(values.project)


@cache
def agent_files(uri: str) -> dict[str, str]:
    """Return the metadata that starts and stops the agent, the same for all VMs.
    docs/interfaces.md, section 3.

    `uri` is the agent's address in Cloud Storage, `gs://BUCKET/agent/SHA256.zip`. Raises ValueError
    if there is none.
    """
    if not uri:
        raise ValueError(
            "TRAINMASTER_AGENT is not set: set it to the URI of the agent in Cloud Storage"
        )
    return {
        "startup-script": (_AGENT / "startup.sh").read_text(encoding="utf-8"),
        "shutdown-script": (_AGENT / "shutdown.sh").read_text(encoding="utf-8"),
        "trainmaster-agent": uri,
    }
