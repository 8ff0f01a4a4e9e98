"""Faults on demand: what the Compute emulator offers under `/emulator/v1` because Google has no API for it."""

from __future__ import annotations

import http
from typing import Any, Final

from emulators.stack.loopback import CallError, call
from emulators.stack.state import StackError, StackState

FAULTS: Final = "/emulator/v1/faults"
NONE: Final = {"stockout_zones": [], "quota_regions": [], "slow_s": 0, "rate_limited": 0}
TIMEOUT_S: Final = 30.0


class Faults:
    """The faults of one stack. Every method raises StackError where there is no such VM, or no Compute emulator."""

    def __init__(self, state: StackState) -> None:
        if state.endpoints.compute is None:
            raise StackError("this stack has no Compute emulator")
        self._host = state.endpoints.compute

    def preempt(self, vm: str, notice_s: float | None = None) -> None:
        self._vm(vm, "preempt", notice_s)

    def maintenance(self, vm: str, notice_s: float | None = None) -> None:
        self._vm(vm, "maintenance", notice_s)

    def upcoming_maintenance(self, vm: str, in_s: float | None = None) -> None:
        """Announce maintenance that begins after so long (an hour) to a VM with GPUs."""
        body = {} if in_s is None else {"in_s": in_s}
        self._call("POST", f"/emulator/v1/vms/{vm}:upcoming-maintenance", body, f"VM {vm}")

    def crash(self, vm: str, host: int = 0) -> None:
        """A host error: the VM, or this host of a TPU node, is gone at once, without notice."""
        self._call("POST", f"/emulator/v1/vms/{vm}:crash", {"host": host}, f"VM {vm}")

    def kill_program(self, vm: str, signal: str = "KILL", host: int = 0) -> None:
        """Signal the training program of that VM, or of this host of a TPU node, not its agent."""
        self._call("POST", f"/emulator/v1/vms/{vm}:kill-program", {"signal": signal, "host": host}, f"VM {vm}")

    def current(self) -> dict[str, Any]:
        return self._call("GET", FAULTS, None, "faults")

    def change(self, **faults: object) -> dict[str, Any]:
        """Replace the named ones, keep the others; all of them as they are now."""
        known = {name: value for name, value in self.current().items() if name in NONE}
        self._call("POST", FAULTS, {**NONE, **known, **faults}, "faults")
        return self.current()

    def clear(self) -> None:
        self._call("POST", FAULTS, NONE, "faults")

    def _vm(self, vm: str, fault: str, notice_s: float | None) -> None:
        body = {} if notice_s is None else {"notice_s": notice_s}
        self._call("POST", f"/emulator/v1/vms/{vm}:{fault}", body, f"VM {vm}")

    def _call(self, method: str, path: str, body: object, what: str) -> dict[str, Any]:
        try:
            return call(self._host, method, path, body, timeout_s=TIMEOUT_S)
        except CallError as error:
            if error.status == http.HTTPStatus.NOT_FOUND:
                raise StackError(f"there is no {what}") from error
            raise StackError(f"{what}: {error}") from error
        except OSError as error:
            raise StackError(f"the Compute emulator does not answer: {error}") from error
