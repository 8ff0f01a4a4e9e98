"""Power a VM on and off: its metadata server, its processes, its run limit.

The caller (`vm_transitions`) holds the instance's `transition_lock` and sets its status.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from trainmaster_emulators.machines.instances import Instance
from trainmaster_emulators.machines.metadata_server import MetadataServer
from trainmaster_emulators.machines.metadata_tree import MetadataTree
from trainmaster_emulators.machines.powered_vm import SYSTEM_PATH, PoweredVm
from trainmaster_emulators.machines.vm_metadata import Project, build_tree, vm_identity
from trainmaster_emulators.machines.vm_python import create_overlay
from trainmaster_emulators.machines.vm_tokens import TokenIssuer

BootEvent = Callable[[Instance, int], None]
"""Callback for an event of one power-on of a VM: the instance, and its `boots` at that power-on."""


@dataclass(frozen=True, slots=True)
class VmPower:
    """Powers the VMs of one project on and off."""

    project: Project
    host: str
    """Loopback address of the metadata servers."""
    issuer: TokenIssuer
    vm_environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for all VMs."""
    tenant: Project | None = None
    """Project that identity tokens name; None: `project`.

    The hosts of TPU slices belong to a project of Google's.
    """

    def on(
        self, instance: Instance, *, on_unexpected_end: BootEvent, on_run_limit: BootEvent
    ) -> None:
        """Power on. The startup script is running when this returns.

        `on_unexpected_end` is called if the processes end without `off`, `on_run_limit` when
        `maxRunDuration` is over.
        """
        instance.boots += 1
        boot = instance.boots
        instance.metadata_tree = MetadataTree(build_tree(instance, self.project, self.host))
        # Set the attributes again: setMetadata may have changed them before the tree was assigned.
        instance.metadata_tree.put("instance/attributes", dict(instance.metadata))
        identity = vm_identity(instance, self.tenant or self.project)
        instance.metadata_server = MetadataServer(
            self.host, instance.metadata_tree, self.issuer, identity
        )
        address = instance.metadata_server.address
        instance.disk.create()
        environment = {
            "PATH": _path(instance),
            "LANG": "C.UTF-8",
            "GCE_METADATA_HOST": address,
            "GCE_METADATA_IP": address,  # google-auth uses it to detect Compute Engine
            **self.vm_environment,
        }
        instance.disk.log(f"{instance.name} powered on, instance {instance.id}, boot {boot}")
        script = instance.metadata.get("startup-script", "")
        instance.vm = PoweredVm(
            instance.disk, script, environment, lambda _: on_unexpected_end(instance, boot)
        )
        instance.started_at = datetime.now(UTC)
        limit_s = instance.properties.scheduling.max_run_s
        if limit_s is not None:
            instance.run_limit_timer = threading.Timer(limit_s, on_run_limit, (instance, boot))
            instance.run_limit_timer.daemon = True
            instance.run_limit_timer.start()

    def off(self, instance: Instance, grace_s: float) -> None:
        """Shut down and power off after `grace_s` at the latest; 0: power off at once. Blocks."""
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


def _path(instance: Instance) -> str:
    """Return PATH of the VM's programs: its own Python, the image's other programs, the
    machine's.
    """
    image = instance.properties.environment
    if image is None:
        return SYSTEM_PATH
    return f"{create_overlay(Path(image), instance.disk.python)}:{image}/bin:{SYSTEM_PATH}"
