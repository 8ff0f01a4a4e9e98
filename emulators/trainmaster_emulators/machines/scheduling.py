"""The scheduling options of a VM: host maintenance, Spot VMs, and the run limit, with Compute's
checks.

Source of the rules: Compute's reference of Scheduling, "Set VM host maintenance policy", "Create
and use Spot VMs", "Limit the run time of a VM".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainmaster.core.machines.machine_types import family_of
from trainmaster.core.model.purchase import OnDemand, Reserved, Spot
from trainmaster_emulators.machines.compute_errors import ApiError, Json, invalid

RUN_DURATION_S_MAX: Final = 120 * 24 * 3600
NOTICES_S: Final = (0, 120)
"""The allowed values of preemptionNoticeDuration."""
STANDARD: Final = "STANDARD"
SPOT: Final = "SPOT"
RESERVATION_BOUND: Final = "RESERVATION_BOUND"
_MODELS: Final = {OnDemand: STANDARD, Spot: SPOT, Reserved: RESERVATION_BOUND}
"""Way in which a machine type is sold → provisioning model. Flex-start is left out."""
_MIGRATE_ONLY_PREFIX: Final = "e2-"
"""Start of the machine types whose VMs cannot be stopped for maintenance."""


@dataclass(frozen=True, slots=True)
class Scheduling:
    """The valid scheduling options of a VM."""

    automatic_restart: bool
    on_host_maintenance: str
    """MIGRATE or TERMINATE."""
    model: str
    """SPOT, STANDARD or RESERVATION_BOUND."""
    termination_action: str
    """STOP or DELETE, at a preemption and at the run limit."""
    max_run_s: float | None
    """Run limit; None: unlimited."""
    preemption_notice_s: int = 0
    """From the announcement of a preemption to the shutdown."""

    @property
    def spot(self) -> bool:
        return self.model == SPOT

    def as_json(self) -> Json:
        shown: Json = {
            "onHostMaintenance": self.on_host_maintenance,
            "automaticRestart": self.automatic_restart,
            "preemptible": self.spot,
            "provisioningModel": self.model,
        }
        if self.spot or self.max_run_s is not None:
            shown["instanceTerminationAction"] = self.termination_action
        if self.max_run_s is not None:
            whole = int(self.max_run_s)
            shown["maxRunDuration"] = {
                "seconds": str(whole),
                "nanos": int((self.max_run_s - whole) * 1e9),
            }
        if self.preemption_notice_s:
            shown["preemptionNoticeDuration"] = {"seconds": str(self.preemption_notice_s)}
        return shown


def parse_scheduling(
    body: Json, machine_type: str, *, has_gpus: bool, run_s_min: float
) -> Scheduling:
    """Check a Scheduling resource. Raises the ApiError that Google returns.

    `run_s_min`: the shortest run limit, in seconds, which may be shorter than Google's.
    """
    model = str(body.get("provisioningModel") or (SPOT if body.get("preemptible") else STANDARD))
    spot = model == SPOT
    maintenance = str(body.get("onHostMaintenance") or ("TERMINATE" if spot else "MIGRATE"))
    restart = bool(body.get("automaticRestart", not spot))
    action = str(body.get("instanceTerminationAction") or "STOP")
    if model not in (STANDARD, SPOT, RESERVATION_BOUND):
        why = "Must be STANDARD, SPOT or RESERVATION_BOUND."
        raise invalid("resource.scheduling.provisioningModel", model, why)
    if model not in {_MODELS.get(sale) for sale in family_of(machine_type).sales}:
        why = f"Machine type {machine_type} cannot be created with this provisioning model."
        raise invalid("resource.scheduling.provisioningModel", model, why)
    if maintenance not in ("MIGRATE", "TERMINATE"):
        raise invalid(
            "resource.scheduling.onHostMaintenance", maintenance, "Must be MIGRATE or TERMINATE."
        )
    if action not in ("STOP", "DELETE"):
        raise invalid(
            "resource.scheduling.instanceTerminationAction", action, "Must be STOP or DELETE."
        )
    if spot and (restart or maintenance == "MIGRATE"):
        message = (
            "Scheduling must have preemptible be false when AutomaticRestart is true or live"
            " migration is on."
        )
        raise ApiError(400, "invalid", message)
    if has_gpus and maintenance == "MIGRATE":
        raise ApiError(
            400, "badRequest", "Instances with guest accelerators do not support live migration."
        )
    if maintenance == "TERMINATE" and not spot and machine_type.startswith(_MIGRATE_ONLY_PREFIX):
        why = (
            f"Instances of machine type {machine_type} can only live migrate, unless they are Spot"
            " VMs."
        )
        raise invalid("resource.scheduling.onHostMaintenance", maintenance, why)
    return Scheduling(
        restart, maintenance, model, action, _run_s(body, run_s_min), _notice_s(body, spot=spot)
    )


def _run_s(body: Json, run_s_min: float) -> float | None:
    duration = body.get("maxRunDuration")
    if not duration:
        return None
    run_s = int(duration.get("seconds") or 0) + int(duration.get("nanos") or 0) / 1e9
    if not run_s_min <= run_s <= RUN_DURATION_S_MAX:
        why = f"Must be between {run_s_min:g} and {RUN_DURATION_S_MAX} seconds."
        raise invalid("resource.scheduling.maxRunDuration", f"{run_s:g}s", why)
    return run_s


def _notice_s(body: Json, *, spot: bool) -> int:
    notice_s = int((body.get("preemptionNoticeDuration") or {}).get("seconds") or 0)
    if notice_s not in NOTICES_S or (notice_s and not spot):
        why = "Must be 120 seconds or unset, and is for Spot VMs only."
        raise invalid("resource.scheduling.preemptionNoticeDuration", f"{notice_s}s", why)
    return notice_s
