"""Check and resolve what `trainmaster:` adds to a job: environment, Spot VMs, boot image, reservation, exit policy."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from trainmaster.core.model.exit_policy import ExitPolicy
from trainmaster.core.model.plan import Variable
from trainmaster.jobspec.fields.environment_variables import resolve_common_variables
from trainmaster.jobspec.fields.exit_policy import resolve_exit_policy
from trainmaster.jobspec.fields.google_resources import PROJECT
from trainmaster.jobspec.formats.extension import CheckpointSignal, Extension, SpotSpec, SpotUse
from trainmaster.jobspec.problems import FieldPath, Problems, quoted
from trainmaster.jobspec.reading.document_kinds import EXTENSION, example_at

_NAME: Final = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
_IMAGE: Final = re.compile(rf"{PROJECT}/global/images/(family/)?{_NAME}")
_TPU_SOFTWARE: Final = re.compile(r"[a-z0-9][a-z0-9.-]{0,62}")
_RESERVATION: Final = re.compile(rf"({PROJECT}/reservations/)?{_NAME}")


@dataclass(frozen=True, slots=True)
class ResolvedExtension:
    """The checked values of the fields of `trainmaster`."""

    variables: tuple[Variable, ...]
    """Environment variables of every replica."""
    spot: SpotUse | None
    """Which roles run on Spot VMs; None: the job does not say."""
    on_demand_after: int | None
    image: str | None
    """Boot image or TPU software version; see `check_boot_image`."""
    reservation: str | None
    checkpoint_signal: CheckpointSignal
    stall_timeout_s: int | None
    exit_policy: ExitPolicy


def resolve_extension(extension: Extension, problems: Problems) -> ResolvedExtension:
    _check_on_demand_after(extension.spot, problems)
    _check_reservation(extension.reservation, problems)
    return ResolvedExtension(
        variables=resolve_common_variables(extension, problems),
        spot=extension.spot.use,
        on_demand_after=extension.spot.on_demand_after,
        image=extension.image,
        reservation=extension.reservation,
        checkpoint_signal=extension.checkpoint_signal or CheckpointSignal.SIGTERM,
        stall_timeout_s=extension.stall_timeout,
        exit_policy=resolve_exit_policy(extension.exit_policy, problems),
    )


def check_boot_image(image: str, problems: Problems, *, has_tpu: bool) -> None:
    """Check the boot image of VMs. TPU VMs have no choice of one: for them it is Cloud TPU's software version."""
    path: FieldPath = (EXTENSION, "image")
    if has_tpu and not _TPU_SOFTWARE.fullmatch(image):
        rule = "must be a TPU software version for a job with TPU VMs"
        problems.add(path, f"{rule}, not {quoted(image)}", "v2-alpha-tpuv6e")
    elif not has_tpu and not _IMAGE.fullmatch(image):
        rule = "must be a boot image, projects/P/global/images/NAME or projects/P/global/images/family/NAME"
        problems.add(path, f"{rule}, not {quoted(image)}", example_at(path))


def _check_on_demand_after(spot: SpotSpec, problems: Problems) -> None:
    if spot.on_demand_after is not None and spot.use in (None, SpotUse.NONE):
        path = (EXTENSION, "spot", "onDemandAfter")
        problems.add_text(path, "is only for jobs on Spot VMs, and this job uses none", "use: workers")


def _check_reservation(name: str | None, problems: Problems) -> None:
    path: FieldPath = (EXTENSION, "reservation")
    if name is not None and not _RESERVATION.fullmatch(name):
        problems.add(path, f"must be the name of a reservation, not {quoted(name)}", example_at(path))
