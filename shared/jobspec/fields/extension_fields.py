"""What `trainmaster:` adds to a job, checked: machines, environment, signals, exit rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from shared.core.model.exit_policy import ExitPolicy
from shared.core.model.job import Variable
from shared.core.model.replica_id import TaskType
from shared.jobspec.fields.environment_variables import common_variables
from shared.jobspec.fields.exit_policy import resolve_exit_policy
from shared.jobspec.formats.extension import CHECKPOINT_SIGNALS, Extension
from shared.jobspec.reading.document_kinds import EXTENSION, example_of
from shared.jobspec.reading.problems import Findings, Loc, given

_NAME: Final = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
_PROJECT: Final = r"projects/[a-z0-9][a-z0-9:.-]{0,62}"
_IMAGE: Final = re.compile(rf"{_PROJECT}/global/images/(family/)?{_NAME}")
_TPU_SOFTWARE: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_RESERVATION: Final = re.compile(rf"({_PROJECT}/reservations/)?{_NAME}")


@dataclass(frozen=True, slots=True)
class Extras:
    """`spot`: which roles run on Spot VMs, None where the job does not say; `image`: see `check_image_of`."""

    variables: tuple[Variable, ...]
    spot: str | None
    on_demand_after: int | None
    image: str | None
    reservation: str | None
    checkpoint_signal: str
    exit_policy: ExitPolicy


def resolve_extras(extension: Extension, found: Findings) -> Extras:
    spot = extension.spot
    return Extras(
        variables=common_variables(extension, found),
        spot=spot.use if spot else None,
        on_demand_after=_on_demand_after(extension, found),
        image=extension.image,
        reservation=_reservation(extension.reservation, found),
        checkpoint_signal=extension.checkpoint_signal or CHECKPOINT_SIGNALS[0],
        exit_policy=resolve_exit_policy(extension.exit_policy, found),
    )


def is_spot(use: str | None, task_type: TaskType) -> bool:
    return use == "ALL" or (use == "WORKERS" and task_type is TaskType.WORKER)


def check_image_of(image: str, found: Findings, *, has_tpu: bool) -> None:
    """The VMs' boot image; on TPU VMs, which have none to choose, Cloud TPU's software version."""
    at: Loc = (EXTENSION, "image")
    if has_tpu and not _TPU_SOFTWARE.fullmatch(image):
        found.add(at, f"must be a TPU software version on a TPU VM, not {given(image)}", "v2-alpha-tpuv6e")
    elif not has_tpu and not _IMAGE.fullmatch(image):
        rule = "must be a boot image, projects/P/global/images/NAME or …/images/family/NAME"
        found.add(at, f"{rule}, not {given(image)}", example_of(at))


def region_of(region: str | None, at: Loc, extension: Extension, found: Findings) -> str | None:
    """The job's region: its own field's, where there is one, or `trainmaster.region`."""
    ours = extension.region
    if region is not None and ours is not None and region != ours:
        found.add((EXTENSION, "region"), f"contradicts {found.path(at)}, which is {region}", region)
    return region or ours


def _on_demand_after(extension: Extension, found: Findings) -> int | None:
    spot = extension.spot
    if spot is None or spot.on_demand_after is None:
        return None
    at: Loc = (EXTENSION, "spot", "onDemandAfter")
    if spot.on_demand_after < 1:
        found.add(at, f"must be at least 1 lost VM, not {spot.on_demand_after}", 3)
    elif spot.use in (None, "NONE"):
        found.add_text(at, "is for Spot VMs, and none are asked for", "use: workers")
    return spot.on_demand_after


def _reservation(name: str | None, found: Findings) -> str | None:
    at: Loc = (EXTENSION, "reservation")
    if name is not None and not _RESERVATION.fullmatch(name):
        found.add(at, f"must be the name of a reservation, not {given(name)}", example_of(at))
    return name
