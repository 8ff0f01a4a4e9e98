"""Resolve the place of a job: its region, and the zones in which its VMs are requested."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from typing import Final

from trainmaster.core.machines.tpus import zones_of
from trainmaster.core.model.task_group import Tpu
from trainmaster.jobspec.catalog.regions import REGION_ZONES, TPU_ONLY_REGIONS
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.problems import FieldPath, Problems, quoted, yaml_line
from trainmaster.jobspec.reading.document_kinds import example_at
from trainmaster.jobspec.reading.field_names import EXTENSION

_SUGGESTIONS_MAX: Final = 3
"""Regions that a message suggests in place of one that does not exist."""


def resolve_region(
    region: str | None, path: FieldPath, extension: Extension, problems: Problems
) -> str | None:
    """Return the region of the document's own field or of `trainmaster.region`.

    If both are given, they must not differ.
    """
    if region is not None and extension.region is not None and region != extension.region:
        problem = f"contradicts {problems.spelled_path(path)}, which is {region}"
        problems.add((EXTENSION, "region"), problem, example=region)
    return region or extension.region


def resolve_zones(
    region: str | None,
    path: FieldPath,
    requested: Sequence[str],
    tpus: Iterable[Tpu],
    problems: Problems,
) -> tuple[str, tuple[str, ...]]:
    """Return the region, and the zones to try, in this order.

    They are the requested zones; else all zones of the region that offer the job's TPUs. `path`:
    that of the field that names the region. A job with a problem gets an incomplete answer.
    """
    if region is None:
        reason = ": a CustomJob has no region of its own" if path[0] == EXTENSION else ""
        problems.add(path, f"is required{reason}", example=example_at(path))
        return "", ()
    without_letter = region.rpartition("-")[0]
    is_zone = region in REGION_ZONES.get(without_letter, ())
    if is_zone:
        zones_path: FieldPath = (EXTENSION, "zones")
        problem = (
            f"is a zone of {without_letter}: {quoted(region)}; name the region, and the zone in"
            f" {problems.spelled_path(zones_path)}"
        )
        own_name = problems.spelled_name(path)
        is_beside_zones = path[0] == EXTENSION
        example = (
            yaml_line({own_name: without_letter, "zones": [region]})
            if is_beside_zones
            else f'{yaml_line({own_name: without_letter})}, {EXTENSION}: {{zones: ["{region}"]}}'
        )
        problems.add_text(path, problem, advice=example)
        return region, ()
    if region not in REGION_ZONES:
        nearest = difflib.get_close_matches(region.lower(), REGION_ZONES, n=_SUGGESTIONS_MAX)
        nearest = nearest or [str(example_at(path))]
        hint = f"did you mean {' or '.join(nearest)}?"
        problems.add(
            path, f"is not a region of Compute Engine: {quoted(region)}; {hint}", example=nearest[0]
        )
        return region, ()
    zones = REGION_ZONES[region]
    check_zones(requested, (EXTENSION, "zones"), problems, region)
    types = sorted({tpu.type for tpu in tpus})
    if region in TPU_ONLY_REGIONS and not types:
        problems.add(
            path,
            f"cannot be {region} for a job without TPUs: it offers only Cloud TPUs",
            example=example_at(path),
        )
    if requested:
        return region, tuple(requested)
    for tpu_type in types:
        offered = zones_of(tpu_type)
        zones = tuple(zone for zone in zones if zone in offered)
        if not zones:
            regions = list(dict.fromkeys(zone.rpartition("-")[0] for zone in offered))
            hint = f"if you know a zone that does, name it in {EXTENSION}.zones"
            problem = (
                f"must be a region that is known to offer {tpu_type} ({', '.join(regions)}), not"
                f" {region}; {hint}"
            )
            problems.add(path, problem, example=regions[0])
    return region, zones


def check_zones(
    requested: Sequence[str], path: FieldPath, problems: Problems, region: str = ""
) -> None:
    """Check the zones, of `region` if given.

    AI zones (`us-central1-ai1a`) are only used if a job names them.
    """
    for index, zone in enumerate(requested):
        of_region = region or zone.rpartition("-")[0]
        zones = REGION_ZONES.get(of_region, ())
        if not zones:
            problems.add(
                (*path, index),
                f"is not a zone of Compute Engine: {quoted(zone)}",
                example="us-central1-a",
            )
        elif zone not in zones and not re.fullmatch(rf"{of_region}-ai[0-9][a-z]", zone):
            problem = f"must be a zone of {of_region} ({', '.join(zones)}), not {quoted(zone)}"
            problems.add((*path, index), problem, example=zones[0])
        elif zone in requested[:index]:
            unique = list(dict.fromkeys(requested))
            problems.add_text((*path, index), f"repeats {zone}", advice=f"zones: {unique}")
