"""The VMs of a slice, and their metadata.

Each host has its own address on the loopback network, with a metadata server, a disk, and real
processes. Source of the attributes: metadata of real TPU VMs, as JAX and torch_xla read it.
"""

from __future__ import annotations

import random
import secrets
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

from trainmaster_emulators.machines.catalog import Catalog
from trainmaster_emulators.machines.instances import Instance
from trainmaster_emulators.machines.powered_vm import Disk
from trainmaster_emulators.machines.properties import Properties
from trainmaster_emulators.machines.scheduling import SPOT, STANDARD, Scheduling
from trainmaster_emulators.machines.vm_metadata import Project
from trainmaster_emulators.machines.vm_power import BootEvent, VmPower
from trainmaster_emulators.tpu.nodes import Node

TENANT: Final = Project("e0123456789abcdefp-tp", 987654321098)
"""Google's project in which the hosts are VMs.

We conclude from CONSUMER_PROJECT_ID that it is not the user's.
"""


def addresses(count: int) -> tuple[str, ...]:
    """Return consecutive addresses of a random network.

    Two slices may share one, because their ports differ.
    """
    network = f"127.{random.randint(64, 127)}.{random.randint(0, 255)}"  # noqa: S311 - no secret
    return tuple(f"{network}.{number + 1}" for number in range(count))


class SliceHosts:
    """Builds and powers the hosts of slices. `state_dir`: the Compute emulator's."""

    def __init__(self, power: VmPower, catalog: Catalog, state_dir: Path) -> None:
        self.power = power
        self._catalog = catalog
        self._state_dir = state_dir

    def build(self, node: Node) -> list[Instance]:
        """Create the hosts of a node, powered off."""
        series = secrets.token_hex(4)
        return [
            self._host(node, f"t1v-n-{series}-w-{number}", number)
            for number in range(node.spec.slice.hosts)
        ]

    def _host(self, node: Node, name: str, number: int) -> Instance:
        host_id = secrets.randbits(62) | 1 << 62
        disk = Disk(
            self._state_dir / "vms" / str(host_id),
            self._state_dir / "serial" / f"{node.name}-w-{number}-{host_id}.log",
        )
        spec = node.spec
        properties = Properties(
            machine_type=f"{spec.slice.kind.lower()}-host",
            environment=self._catalog.environment_of(spec.runtime),
            scheduling=Scheduling(
                automatic_restart=False,
                on_host_maintenance="TERMINATE",
                model=SPOT if spec.spot else STANDARD,
                termination_action="STOP",
                max_run_s=None,
            ),
            metadata=node.metadata,
            labels=spec.labels,
            service_account=spec.service_account,
            scopes=spec.scopes,
            accelerators=(),
            shown={},
        )
        return Instance(
            name=name,
            zone=node.zone,
            id=host_id,
            properties=properties,
            disk=disk,
            metadata=self.attributes(node, number),
            labels=dict(spec.labels),
        )

    def attributes(self, node: Node, number: int) -> dict[str, str]:
        """Return `instance/attributes/` of one host."""
        return {
            **node.metadata,
            "accelerator-type": node.spec.slice.type,
            "agent-worker-number": str(number),
            "tpu-env": self._environment(node, number),
            "worker-network-endpoints": ",".join(
                f"unknown:unknown:{address}" for address in node.addresses
            ),
        }

    def _environment(self, node: Node, number: int) -> str:
        chips = ",".join(map(str, node.spec.slice.chips_per_host))
        bounds = ",".join(map(str, node.spec.slice.host_bounds))
        values = {
            "ACCELERATOR_TYPE": node.spec.slice.type,
            "CHIPS_PER_HOST_BOUNDS": chips,
            "CONSUMER_PROJECT_ID": self.power.project.id,
            "CONSUMER_PROJECT_NUMBER": str(self.power.project.number),
            "HOST_BOUNDS": bounds,
            "NODE_ID": node.name,
            "PREEMPTIBLE": str(node.spec.spot).lower(),
            "RUNTIME_VERSION": node.spec.runtime,
            "TOPOLOGY": node.spec.slice.topology,
            "TPU_CHIPS_PER_PROCESS_BOUNDS": chips,
            "TPU_PROCESS_BOUNDS": bounds,
            "TYPE": node.spec.slice.kind,
            "UID": str(node.id),
            "WORKER_ID": str(number),
            "ZONE": node.zone,
        }
        return "".join(f"{key}: '{value}'\n" for key, value in values.items())

    def power_on(self, node: Node, hosts: list[Instance], on_unexpected_end: BootEvent) -> None:
        """Power on some hosts of a node. Their startup scripts are running when this returns."""
        for host in hosts:
            power = replace(self.power, host=node.addresses[node.hosts.index(host)], tenant=TENANT)
            power.on(host, on_unexpected_end=on_unexpected_end, on_run_limit=_ignore_run_limit)

    def power_off(self, hosts: list[Instance], grace_s: float) -> None:
        """Shut down all hosts at the same time, and power off after `grace_s` at the latest."""
        powered = [host for host in hosts if host.vm is not None]
        with ThreadPoolExecutor(max_workers=max(1, len(powered))) as pool:
            futures = [pool.submit(self.power.off, host, grace_s) for host in powered]
            for future in futures:
                future.result()


def put_metadata(node: Node, path: str, value: str) -> None:
    """Set a value in the metadata of all hosts that are powered on."""
    for host in node.hosts:
        if host.metadata_tree is not None:
            host.metadata_tree.put(path, value)


def _ignore_run_limit(_host: Instance, _boot: int) -> None:
    """TPU VMs have no run limit."""
