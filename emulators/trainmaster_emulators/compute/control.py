"""The emulator's own calls, under `/emulator/v1`: faults, replica addresses, and the keys of
identity tokens.

`docs/interfaces.md` section 6 is the contract.
"""

from __future__ import annotations

import signal
from collections.abc import Mapping

from trainmaster_emulators.compute import maintenance_schedule
from trainmaster_emulators.compute.addresses import AddressBook
from trainmaster_emulators.compute.cloud import Cloud
from trainmaster_emulators.machines.compute_errors import (
    ApiError,
    Json,
    not_found,
    not_ready,
    required,
)
from trainmaster_emulators.machines.injected_faults import parse_injected_faults
from trainmaster_emulators.machines.instances import BEING_CREATED, Instance, Status
from trainmaster_emulators.machines.vm_tokens import TokenIssuer
from trainmaster_emulators.tpu import control as tpu_control
from trainmaster_emulators.tpu.cloud import TpuCloud


class Control:
    """Answers the calls that `server.py` routes here.

    A method that cannot answer raises ApiError. A name is that of a TPU node, or else of a VM.
    """

    def __init__(
        self, cloud: Cloud, tpus: TpuCloud, addresses: AddressBook, issuer: TokenIssuer
    ) -> None:
        self.cloud = cloud
        self.tpus = tpus
        self.addresses = addresses
        self._certificates = issuer.certificates()

    def health(self) -> Json:
        return {"status": "ok", "project": self.cloud.project.id}

    def address(self, name: str) -> Json:
        """Return where a replica of this name is reached, each as `host:port`: its program by TCP,
        and its agent by UDP (the channel between the agents of a synchronous job).
        """
        if not name:
            raise required("name")
        return {
            "address": self.addresses.address(name),
            "channel_address": self.addresses.channel_address(name),
        }

    def certificates(self) -> Json:
        return dict(self._certificates)

    def processes(self, name: str, arguments: Mapping[str, str]) -> Json:
        """Return the process ids of a VM, or of a host of a TPU node, for a shell on it
        (`trainmaster ssh`).
        """
        node = self.tpus.find(name)
        instance = tpu_control.host_of(node, arguments) if node else self.cloud.instances.find(name)
        if instance.vm is None:
            raise not_ready(instance.path(self.cloud.links))
        return {"init": instance.vm.pid, "program": instance.vm.find_program()}

    def faults(self) -> Json:
        return self.cloud.faults.as_json()

    def post_faults(self, body: Json) -> Json:
        self.cloud.faults.set(parse_injected_faults(body))
        return self.faults()

    def act(self, name: str, verb: str, body: Json) -> Json:
        """Inject a fault into one VM or TPU node.

        Returns at once; a VM's operation is done when the fault is over. `notice_s` of the body:
        seconds from the notice to the fault; without it, those of Google.
        """
        signal_name = str(body.get("signal", "KILL"))
        node = self.tpus.find(name)
        if node:
            if verb == "kill-program":
                return self._kill_program(tpu_control.host_of(node, body), signal_name)
            return tpu_control.act(self.tpus, node, verb, body)
        instance = self.cloud.instances.find(name)
        if not _can_happen(verb, instance.status):
            raise not_ready(instance.path(self.cloud.links))
        lifecycle = self.cloud.lifecycle
        notice_s = None if body.get("notice_s") is None else float(body["notice_s"])
        match verb:
            case "preempt":
                operation = lifecycle.preempt(instance, notice_s)
            case "maintenance":
                operation = lifecycle.maintain(instance, notice_s)
            case "crash":
                operation = lifecycle.crash(instance)
            case "upcoming-maintenance":
                # Here, `notice_s` is the time until the maintenance begins.
                in_s = maintenance_schedule.NOTICE_S if notice_s is None else notice_s
                return maintenance_schedule.announce(lifecycle, instance, in_s)
            case "kill-program":
                return self._kill_program(instance, signal_name)
            case _:
                raise not_found(f"emulator/v1/vms/{name}:{verb}")
        return self.cloud.operations.show(operation)

    def _kill_program(self, instance: Instance, name: str) -> Json:
        try:
            signum = signal.Signals[f"SIG{name.removeprefix('SIG')}"]
        except KeyError:
            raise ApiError(400, "invalid", f"'{name}' is not the name of a signal") from None
        pid = instance.vm.signal_program(signum) if instance.vm is not None else None
        if pid is None:
            raise ApiError(404, "notFound", f"No training program is running on {instance.name}")
        return {"pid": pid, "signal": signum.name}


def _can_happen(verb: str, status: Status) -> bool:
    """Return whether a VM of this status can have the fault.

    A crash can cut a shutdown short, and a preemption can end a creation.
    """
    if verb == "crash" and status is Status.STOPPING:
        return True
    if verb == "preempt" and status in BEING_CREATED:
        return True
    return status is Status.RUNNING
