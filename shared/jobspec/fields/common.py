"""The rules of a job's single parts: id, labels, place, time, account, network, key.

Each notes what is wrong and goes on. What a rule returns is right if `found` has no problems, and a stand-in otherwise.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from shared.core.model.job import Tpu
from shared.jobspec.catalog.regions import REGION_ZONES, TPU_ONLY_REGIONS
from shared.jobspec.catalog.tpu_types import zones_of
from shared.jobspec.fields.job_id import JOB_ID, JOB_ID_CHARS_MAX, nearest_legal
from shared.jobspec.formats.scalars import seconds
from shared.jobspec.reading.document_kinds import EXTENSION, example_of
from shared.jobspec.reading.problems import Findings, Loc, given

LABELS_MAX: Final = 64
MAX_RUNNING_S_DEFAULT: Final = 604_800
"""Seven days. Source: both APIs' schemas, `scheduling.maxRunningTime` and `scheduling.timeout`."""
MAX_WAIT_S_MIN: Final = 1_800
"""Source: the API's schema, `scheduling.maxWaitTime`."""
TIME_S_MAX: Final = 100 * 86_400
"""A VM's fuse can be set to 120 days at most (Compute Engine, maxRunDuration); the rest is for starting and waiting."""
PRIORITY_MAX: Final = 1_000
"""Source: the API's schema, `scheduling.priority`."""

_LABEL_KEY: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE: Final = re.compile(r"[a-z0-9_-]{0,63}")
_OWN_LABELS: Final = "trainmaster-"
_EMAIL: Final = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")
_PROJECT: Final = r"projects/[a-z0-9][a-z0-9:.-]{0,62}"
_NETWORK: Final = re.compile(rf"{_PROJECT}/global/networks/[a-z]([-a-z0-9]{{0,61}}[a-z0-9])?")
_KEY: Final = re.compile(
    rf"{_PROJECT}/locations/(?P<location>[a-z0-9-]+)/keyRings/[A-Za-z0-9_-]{{1,63}}/cryptoKeys/[A-Za-z0-9_-]{{1,63}}"
)


def check_job_id(job_id: str | None, found: Findings) -> None:
    if job_id is None:
        found.add(("jobId",), "is required", example_of(("jobId",)))
    elif not JOB_ID.fullmatch(job_id):
        rule = f"must be letters, digits and underscores, a letter first, at most {JOB_ID_CHARS_MAX} in all"
        found.add(("jobId",), f"{rule}, unlike {given(job_id)}", nearest_legal(job_id))


def check_labels(labels: Mapping[str, str], found: Findings) -> None:
    """Source: the documented rules of labels; TFX sends values that begin with a digit (`tfx_py_version: 3-7`)."""
    if len(labels) > LABELS_MAX:
        found.add(("labels",), f"has {len(labels)} labels, more than {LABELS_MAX}", {"team": "vision"})
    for key, value in labels.items():
        if not _LABEL_KEY.fullmatch(key) or key.startswith(_OWN_LABELS):
            rule = "must start with a lower-case letter and have at most 63 of a-z, 0-9, _ and -"
            own = f"; {_OWN_LABELS}… are Trainmaster's own" if key.startswith(_OWN_LABELS) else ""
            found.add_text(("labels", key), f"is no label key: it {rule}{own}", "team: vision")
        elif not _LABEL_VALUE.fullmatch(value):
            rule = "must have at most 63 of a-z, 0-9, _ and -"
            found.add(
                ("labels", key), f"{rule}, unlike {given(value)}", re.sub(r"[^a-z0-9_-]+", "-", value.lower())[:63]
            )


def check_place(
    region: str | None, at: Loc, desired: Sequence[str], tpus: Iterable[Tpu], found: Findings
) -> tuple[str, tuple[str, ...]]:
    """The region, and the zones to try in it, in this order: those the job names, else all that have its TPUs."""
    if region is None:
        why = ": a CustomJob does not say where it runs" if at[0] == EXTENSION else ""
        found.add(at, f"is required{why}", example_of(at))
        return "", ()
    if region not in REGION_ZONES:
        near = difflib.get_close_matches(region.lower(), REGION_ZONES, n=3) or [str(example_of(at))]
        hint = f"did you mean {' or '.join(near)}?"
        found.add(at, f"is not a region of Compute Engine: {given(region)}; {hint}", near[0])
        return region, ()
    zones = REGION_ZONES[region]
    _check_zones(region, desired, found)
    types = sorted({tpu.type for tpu in tpus})
    if region in TPU_ONLY_REGIONS and not types:
        found.add(at, f"has Cloud TPUs and nothing else: {region}", example_of(at))
    for tpu_type in types if not desired else ():
        offered = zones_of(tpu_type)
        zones = tuple(zone for zone in zones if zone in offered)
        if not zones:
            homes = list(dict.fromkeys(zone.rpartition("-")[0] for zone in offered))
            hint = f"where you know of a zone, name it in {EXTENSION}.zones"
            found.add(at, f"is not known to have {tpu_type}: {', '.join(homes)} are; {hint}", homes[0])
    return region, tuple(desired) or zones


def _check_zones(region: str, desired: Sequence[str], found: Findings) -> None:
    """A region's AI zones (`us-central1-ai1a`) are right as well, and tried only where a job names them."""
    zones, at = REGION_ZONES[region], (EXTENSION, "zones")
    for index, zone in enumerate(desired):
        if zone not in zones and not re.fullmatch(rf"{region}-ai[0-9][a-z]", zone):
            problem = f"is not a zone of {region} ({', '.join(zones)}): {given(zone)}"
            found.add((*at, index), problem, zones[0])
        elif zone in desired[:index]:
            unique = list(dict.fromkeys(desired))
            found.add_text((*at, index), f"names {zone} again", f"zones: {unique}")


def check_running_time(duration: str | None, at: Loc, found: Findings) -> int:
    if duration is None:
        return MAX_RUNNING_S_DEFAULT
    running_s = seconds(duration)
    if not 0 < running_s <= TIME_S_MAX:
        problem = f"must be more than 0s and at most {TIME_S_MAX}s, not {duration}"
        found.add(at, problem, f"{MAX_RUNNING_S_DEFAULT}s")
    return running_s


def check_waiting_time(duration: str | None, at: Loc, found: Findings, *, least_s: int) -> int | None:
    """None: no limit, which 0 says as well where it may (Vertex AI)."""
    if duration is None:
        return None
    wait_s = seconds(duration)
    if not least_s <= wait_s <= TIME_S_MAX:
        problem = f"must be at least {least_s}s and at most {TIME_S_MAX}s, not {duration}"
        found.add(at, problem, f"{max(least_s, MAX_WAIT_S_MIN)}s")
    return wait_s or None


def check_priority(priority: int | None, at: Loc, found: Findings) -> int:
    if priority is not None and not 0 <= priority <= PRIORITY_MAX:
        found.add(at, f"must be from 0 to {PRIORITY_MAX}, not {priority}", min(max(priority, 0), PRIORITY_MAX))
    return priority or 0


def check_account(account: str | None, at: Loc, found: Findings) -> None:
    if account is not None and not _EMAIL.fullmatch(account):
        found.add(at, f"must be the e-mail address of a service account, not {given(account)}", example_of(at))


def check_network(network: str | None, at: Loc, found: Findings) -> None:
    if network is not None and not _NETWORK.fullmatch(network):
        found.add(at, f"must be projects/NUMBER/global/networks/NAME, not {given(network)}", example_of(at))


def check_key(key: str | None, region: str | None, at: Loc, found: Findings) -> None:
    """Source: both APIs: the key must be in the region of what it encrypts."""
    match = _KEY.fullmatch(key or "")
    if key is None:
        return
    if match is None:
        rule = "must be projects/P/locations/REGION/keyRings/RING/cryptoKeys/KEY"
        found.add(at, f"{rule}, not {given(key)}", example_of(at))
    elif region in REGION_ZONES and match["location"] != region:
        right = key.replace(f"/locations/{match['location']}/", f"/locations/{region}/")
        found.add(at, f"must be in the job's region {region}, not in {match['location']}", right)
