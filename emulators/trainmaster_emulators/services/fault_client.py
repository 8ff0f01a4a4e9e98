"""Client for the faults that the Compute emulator can inject, under `/emulator/v1`: Google has no
API for them.
"""

from __future__ import annotations

import http
from typing import Any, Final

from trainmaster_emulators.process.loopback import CallError, call
from trainmaster_emulators.process.state import StackError, StackState

FAULTS_PATH: Final = "/emulator/v1/faults"
"""The faults of the whole project, such as `{"stockout_zones": ["us-central1-a"]}`.

GET returns them, and POST replaces them all. docs/interfaces.md lists their names.
"""
TIMEOUT_S: Final = 30.0


class FaultClient:
    """Injects faults into one stack.

    Every method raises StackError if the VM does not exist or the Compute emulator does not
    respond. `vm` is the name of a VM or of a TPU node. `notice_s` None: the notice that Google
    gives.
    """

    def __init__(self, state: StackState) -> None:
        if state.endpoints.compute is None:
            raise StackError("this stack runs without the Compute emulator")
        self._host = state.endpoints.compute

    def preempt(self, vm: str, notice_s: float | None = None) -> None:
        """Take a Spot VM away, after the notice that its agent can read in the metadata."""
        self._inject(vm, "preempt", notice_s)

    def maintenance(self, vm: str, notice_s: float | None = None) -> None:
        """Begin maintenance: the VM ends after the notice."""
        self._inject(vm, "maintenance", notice_s)

    def upcoming_maintenance(self, vm: str, notice_s: float | None = None) -> None:
        """Announce maintenance to a VM with GPUs, which Google does long before its notice.

        It begins after `notice_s` seconds; None: after an hour.
        """
        self._inject(vm, "upcoming-maintenance", notice_s)

    def crash(self, vm: str, host: int = 0) -> None:
        """Simulate a host error: the VM, or this host of a TPU node, loses power without notice."""
        self._call("POST", f"/emulator/v1/vms/{vm}:crash", {"host": host}, f"VM {vm}")

    def kill_program(self, vm: str, signal: str = "KILL", host: int = 0) -> None:
        """Signal the training program, not the agent, of that VM or of this host of a TPU node."""
        body = {"signal": signal, "host": host}
        resource = f"VM {vm} with a training program"
        self._call("POST", f"/emulator/v1/vms/{vm}:kill-program", body, resource)

    def processes(self, vm: str, host: int = 0) -> dict[str, Any]:
        """Return the process ids of the VM: `init`, and `program`, which is None while no training
        program runs.
        """
        return self._call(
            "GET",
            f"/emulator/v1/vms/{vm}/processes?host={host}",
            body=None,
            resource=f"running VM {vm}",
        )

    def current(self) -> dict[str, Any]:
        """Return the faults of the whole project."""
        return self._call("GET", FAULTS_PATH, body=None, resource="faults")

    def change(self, **faults: object) -> dict[str, Any]:
        """Replace the given faults, keep the others, and return all."""
        return self._call("POST", FAULTS_PATH, {**self.current(), **faults}, "faults")

    def clear(self) -> None:
        """Remove all faults: POST replaces them by none."""
        self._call("POST", FAULTS_PATH, body={}, resource="faults")

    def _inject(self, vm: str, fault: str, notice_s: float | None) -> None:
        body = {} if notice_s is None else {"notice_s": notice_s}
        self._call("POST", f"/emulator/v1/vms/{vm}:{fault}", body, f"VM {vm}")

    def _call(self, method: str, path: str, body: object, resource: str) -> dict[str, Any]:
        try:
            return call(self._host, method, path, body, timeout_s=TIMEOUT_S)
        except CallError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                is_vm = path != FAULTS_PATH
                why = "; its job may have ended, or wait for it" if is_vm else ""
                raise StackError(f"there is no {resource}{why}") from error
            raise StackError(f"{resource}: {error}") from error
        except OSError as error:
            raise StackError(f"the Compute emulator does not respond: {error}") from error
