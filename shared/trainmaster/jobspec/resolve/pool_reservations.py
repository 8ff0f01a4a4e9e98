"""The reservation that the worker pools of a CustomJob name, as `trainmaster.reservation`.

Vertex AI has a `reservationAffinity` for each pool, and a job here has one reservation. The pools
with GPUs use it, or all pools if none has any: those must name one, with its project and zone.
Source: Vertex AI, "Use reservations with training".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from trainmaster.jobspec.fields.google_resources import PROJECT
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.formats.vertex import (
    ReservationAffinity,
    ReservationAffinityType,
    VertexCustomJob,
)
from trainmaster.jobspec.problems import FieldPath, Problems, quoted
from trainmaster.jobspec.resolve.custom_job import POOLS_PATH

KEY: Final = "compute.googleapis.com/reservation-name"
"""Key of an affinity for a reservation that is named."""
_VALUE: Final = re.compile(rf"{PROJECT}/zones/[a-z0-9-]+/reservations/[a-z][-a-z0-9]{{0,62}}")
_EXAMPLE: Final = "projects/my-project/zones/us-central1-a/reservations/my-reservation"


def with_pool_reservation(
    job: VertexCustomJob, extension: Extension, problems: Problems
) -> Extension:
    """Return the fields of `trainmaster` with the reservation and the zone that the pools name.

    If the pools do not name one reservation, that is one problem. The fields then have any
    reservation, so that machines that need one are no further problem.
    """
    machines = {
        index: pool.machine_spec
        for index, pool in enumerate(job.job_spec.worker_pool_specs)
        if pool.machine_spec
    }
    named = {
        index: machine.reservation_affinity
        for index, machine in machines.items()
        if machine.reservation_affinity and _is_request(machine.reservation_affinity)
    }
    if not named:
        return extension
    first_index = min(named)
    wrong = [index for index, affinity in named.items() if not _is_specific(affinity)]
    if wrong:
        problem = f"must name one reservation, with the key {KEY}, its project and its zone"
        problems.add_text(_path(wrong[0]), problem, advice=f'values: ["{_EXAMPLE}"]')
        return extension.model_copy(update={"reservation": "my-reservation"})
    project, zone, name = _parts(named[first_index])
    reservation = f"{project}/reservations/{name}"
    users = [index for index, machine in machines.items() if machine.accelerator_type]
    missing = [index for index in users or machines if index not in named]
    disagreement = _disagreement(extension, list(named.values()), missing, zone)
    if disagreement:
        block = f'trainmaster: {{reservation: "{reservation}", zones: ["{zone}"]}}'
        example = f"{block}, and no reservationAffinity"
        problems.add_text(_path(first_index), f"names a reservation{disagreement}", advice=example)
        return extension.model_copy(update={"reservation": reservation})
    replacement = f"trainmaster.reservation: {reservation}, trainmaster.zones: [{zone}]"
    reason = "A job has one reservation, which its pools name."
    requested, *_ = named[first_index].values
    problems.substitute(_path(first_index), requested, replacement, reason)
    return extension.model_copy(update={"reservation": reservation, "zones": (zone,)})


def _path(index: int) -> FieldPath:
    return (*POOLS_PATH, index, "machineSpec", "reservationAffinity")


def _is_request(affinity: ReservationAffinity) -> bool:
    """Return whether a pool asks for more than Compute Engine does by itself."""
    kind = affinity.reservation_affinity_type
    is_default = kind in (None, ReservationAffinityType.ANY_RESERVATION)
    return not is_default or bool(affinity.key or affinity.values)


def _is_specific(affinity: ReservationAffinity) -> bool:
    """Return whether a pool names one reservation in full."""
    kind = affinity.reservation_affinity_type
    is_of_name = kind is ReservationAffinityType.SPECIFIC_RESERVATION and affinity.key == KEY
    values = affinity.values
    return is_of_name and len(values) == 1 and _VALUE.fullmatch(values[0]) is not None


def _parts(affinity: ReservationAffinity) -> tuple[str, str, str]:
    """Return `projects/PROJECT`, the zone and the name of the reservation that a pool names."""
    project, _, rest = affinity.values[0].partition("/zones/")
    zone, _, name = rest.partition("/reservations/")
    return project, zone, name


def _disagreement(
    extension: Extension,
    affinities: Sequence[ReservationAffinity],
    missing: Sequence[int],
    zone: str,
) -> str:
    """Return why the pools and `trainmaster` do not name one reservation; empty: they do."""
    others = sorted({affinity.values[0] for affinity in affinities[1:]} - {*affinities[0].values})
    if others:
        return f", and another pool names {', '.join(others)}; a job has one reservation"
    if missing:
        pools = ", ".join(f"workerPoolSpecs[{index}]" for index in missing)
        return f", and {pools} names none; all VMs of a job use one reservation"
    project, _, name = _parts(affinities[0])
    own_names = (None, name, f"{project}/reservations/{name}")
    if extension.reservation not in own_names:
        return f", and trainmaster.reservation names {quoted(str(extension.reservation))}"
    if extension.zones and set(extension.zones) != {zone}:
        return f" in {zone}, and trainmaster.zones has {', '.join(extension.zones)}"
    if extension.region and not zone.startswith(f"{extension.region}-"):
        return f" in {zone}, which is not in the region {extension.region}"
    return ""
