"""The monitor that the VM's metadata asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.utilization.gpus import Gpus
from trainmaster.agent.utilization.machine import OwnProcesses, find_machine
from trainmaster.agent.utilization.monitor import WRITE_S, Sources, UtilizationMonitor, read_interval
from trainmaster.agent.utilization.network import read_traffic
from trainmaster.agent.utilization.time_series import SeriesOrigin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainmaster.agent.control.run_state import RunState
    from trainmaster.agent.google_http.google_api import GoogleApi
    from trainmaster.agent.google_http.metadata_server import MetadataServer
    from trainmaster.agent.model.vm_config import AgentIdentity
    from trainmaster.agent.reporting.serial_console import Console


def configured_monitor(
    identity: AgentIdentity,
    environ: Mapping[str, str],
    metadata: MetadataServer,
    monitoring: GoogleApi,
    run_state: RunState,
    console: Console,
) -> UtilizationMonitor | None:
    """Return the monitor; None if metrics are off. Raises nothing for metadata that cannot be read."""
    try:
        interval_s = read_interval(metadata)
    except (HttpError, ValueError) as error:
        console.log(f"Resource metrics are off: their interval cannot be read from the metadata ({error}).")
        return None
    if interval_s is None:
        return None
    path = f"/v3/projects/{identity.config.project}/timeSeries"
    machine = find_machine(environ)
    return UtilizationMonitor(
        SeriesOrigin.of(identity),
        Sources(
            machine.read,
            Gpus(environ, console.log).read,
            # The VMs of the local stack share the interfaces of one machine.
            None if isinstance(machine, OwnProcesses) else read_traffic,
        ),
        lambda body: monitoring.call(path, timeout=WRITE_S, body=body),
        lambda: run_state.last_started,
        console.log,
        interval_s,
    )
