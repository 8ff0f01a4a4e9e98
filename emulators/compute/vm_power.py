"""Powering a VM on and off: its metadata server, its processes, its run_limit_timer.

Called by `lifecycle` with the instance's transition_lock held; statuses are set there.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from emulators.compute.instances import Instance
from emulators.compute.metadata_server import MetadataServer, MetadataTree
from emulators.compute.powered_vm import SYSTEM_PATH, PoweredVm
from emulators.compute.vm_metadata import Project, build_tree, vm_identity
from emulators.compute.vm_tokens import TokenIssuer

BootEvent = Callable[[Instance, int], None]
"""Something that happened to one power-on of a VM: the instance and its `boots` at the time."""


@dataclass(frozen=True, slots=True)
class VmPower:
    """`vm_environment` is added to every VM's; `host` is the loopback address everything listens on."""

    project: Project
    host: str
    issuer: TokenIssuer
    vm_environment: Mapping[str, str] = field(default_factory=dict)

    def on(self, instance: Instance, *, died: BootEvent, burnt: BootEvent) -> None:
        """The startup script runs when this returns. `died`: the VM ended by itself; `burnt`: its run_limit_timer did."""
        instance.boots += 1
        boot = instance.boots
        instance.metadata_tree = MetadataTree(build_tree(instance, self.project, self.host))
        # Again, now that writers see it: one may have come in between.
        instance.metadata_tree.put("instance/attributes", dict(instance.metadata))
        identity = vm_identity(instance, self.project)
        instance.metadata_server = MetadataServer(self.host, instance.metadata_tree, self.issuer, identity)
        address = instance.metadata_server.address
        environment = {
            "PATH": f"{instance.properties.environment}/bin:{SYSTEM_PATH}"
            if instance.properties.environment
            else SYSTEM_PATH,
            "LANG": "C.UTF-8",
            "GCE_METADATA_HOST": address,
            "GCE_METADATA_IP": address,  # where google-auth asks whether it is on Compute Engine at all
            **self.vm_environment,
        }
        instance.disk.create()
        instance.disk.log(f"{instance.name} powered on, instance {instance.id}, boot {boot}")
        script = instance.metadata.get("startup-script", "")
        instance.vm = PoweredVm(instance.disk, script, environment, lambda _: died(instance, boot))
        instance.started_at = datetime.now(UTC)
        limit_s = instance.properties.scheduling.max_run_s
        if limit_s is not None:
            instance.run_limit_timer = threading.Timer(limit_s, burnt, (instance, boot))
            instance.run_limit_timer.daemon = True
            instance.run_limit_timer.start()

    def off(self, instance: Instance, grace_s: float) -> None:
        """The power button, `grace_s` of time to end, the power cable. Blocks; 0: the cable at once."""
        if instance.run_limit_timer is not None:
            instance.run_limit_timer.cancel()
            instance.run_limit_timer = None
        if instance.vm is not None:
            if grace_s > 0:
                instance.vm.shutdown(grace_s)
            else:
                instance.vm.power_off()
            instance.vm = None
        if instance.metadata_server is not None:
            instance.metadata_server.stop()
            instance.metadata_server = instance.metadata_tree = None
        instance.disk.log(f"{instance.name} powered off")
        instance.stopped_at = datetime.now(UTC)
