"""The rules of a job's single parts: id, labels, program, place, time, account. Each notes what is wrong and goes on.

What a rule returns is right if `found` has no problems, and a stand-in otherwise.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import Final

from shared.core.jobs import Program
from shared.jobspec.ids import JOB_ID, JOB_ID_CHARS_MAX, nearest_legal
from shared.jobspec.model import Extension, Scheduling, TrainingInput, example_of
from shared.jobspec.problems import Findings, Loc, given
from shared.jobspec.reading import TRAINING_INPUT
from shared.jobspec.regions import REGION_ZONES
from shared.jobspec.wire import seconds

LABELS_MAX: Final = 64
PACKAGES_MAX: Final = 100
"""Source: the API's schema, `packageUris`."""
MAX_RUNNING_S_DEFAULT: Final = 604_800
"""Seven days. Source: the API's schema, `scheduling.maxRunningTime`."""
MAX_WAIT_S_MIN: Final = 1_800
"""Source: the API's schema, `scheduling.maxWaitTime`."""
TIME_S_MAX: Final = 100 * 86_400
"""A VM's fuse can be set to 120 days at most (Compute Engine, maxRunDuration); the rest is for starting and waiting."""

_LABEL_KEY: Final = re.compile(r"[a-z][a-z0-9_-]{0,62}")
_LABEL_VALUE: Final = re.compile(r"[a-z0-9_-]{0,63}")
_OWN_LABELS: Final = "trainmaster-"
_BUCKET: Final = r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"
_GCS_OBJECT: Final = re.compile(rf"{_BUCKET}/[^\s*?\[\]#\\]+[^\s*?\[\]#\\/]|{_BUCKET}/[^\s*?\[\]#\\/]")
_GCS_DIRECTORY: Final = re.compile(rf"{_BUCKET}(/[^\s*?\[\]#\\]*)?")
_URI_CHARS_MAX: Final = 1_024 + 256
_ARCHIVES: Final = (".tar.gz", ".tgz", ".whl", ".zip", ".tar.bz2", ".tar.xz", ".tar")
_MODULE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_EMAIL: Final = re.compile(r"[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+")


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


def check_program(training: TrainingInput, found: Findings, *, container: bool) -> Program:
    """`container`: the job brings an image, so that neither packages nor a module are required."""
    packages, module = training.package_uris or (), training.python_module
    if not container:
        if not packages:
            _required("packageUris", found)
        if module is None:
            _required("pythonModule", found)
    _check_packages(packages, found)
    if module is not None and not _MODULE.fullmatch(module):
        rule = "must be a dotted module name for python -m"
        found.add((TRAINING_INPUT, "pythonModule"), f"{rule}, not {given(module)}", _dotted(module))
    if training.job_dir is not None and not _is_uri(training.job_dir, _GCS_DIRECTORY):
        rule = "must be a Cloud Storage path (gs://bucket/path, without .. and wildcards)"
        found.add((TRAINING_INPUT, "jobDir"), f"{rule}, not {given(training.job_dir)}", _example("jobDir"))
    return Program(packages, module or "", training.args or (), training.job_dir)


def _check_packages(packages: Sequence[str], found: Findings) -> None:
    at: Loc = (TRAINING_INPUT, "packageUris")
    if len(packages) > PACKAGES_MAX:
        found.add(at, f"has {len(packages)} packages, more than {PACKAGES_MAX}", _example("packageUris"))
    first_with: dict[str, int] = {}
    for index, uri in enumerate(packages):
        file_name = PurePosixPath(uri).name
        if not _is_uri(uri, _GCS_OBJECT):
            rule = "must be an object in Cloud Storage (gs://bucket/path/file, without .. and wildcards)"
            found.add((*at, index), f"{rule}, not {given(uri)}", example_of((*at, index)))
        elif not file_name.endswith(_ARCHIVES):
            rule = f"must be a package that pip installs ({', '.join(_ARCHIVES)})"
            found.add((*at, index), f"{rule}, not {given(file_name)}", example_of((*at, index)))
        elif file_name in first_with:
            rule = f"has the same file name as packageUris[{first_with[file_name]}]: one would overwrite the other"
            found.add((*at, index), rule, re.sub(r"([^/]+)$", r"other-\1", uri))
        first_with.setdefault(file_name, index)


def check_place(training: TrainingInput, extension: Extension, found: Findings) -> tuple[str, tuple[str, ...]]:
    """The region, and the zones to try in it, in this order."""
    region = training.region
    if region is None:
        _required("region", found)
        return "", ()
    if region not in REGION_ZONES:
        near = difflib.get_close_matches(region.lower(), REGION_ZONES, n=3) or [str(_example("region"))]
        hint = f"did you mean {' or '.join(near)}?"
        found.add((TRAINING_INPUT, "region"), f"is not a region of Compute Engine: {given(region)}; {hint}", near[0])
        return region, ()
    zones = REGION_ZONES[region]
    wanted = extension.zones or ()
    for index, zone in enumerate(wanted):
        if zone not in zones:
            problem = f"is not a zone of {region} ({', '.join(zones)}): {given(zone)}"
            found.add(("trainmaster", "zones", index), problem, zones[0])
        elif zone in wanted[:index]:
            unique = list(dict.fromkeys(wanted))
            found.add_text(("trainmaster", "zones", index), f"names {zone} again", f"zones: {unique}")
    return region, wanted or zones


def check_times(scheduling: Scheduling, found: Findings) -> tuple[int, int | None]:
    """`max_running_s` and `max_wait_s` of the plan."""
    running_s, wait_s = MAX_RUNNING_S_DEFAULT, None
    at: Loc = (TRAINING_INPUT, "scheduling")
    if scheduling.max_running_time is not None:
        running_s = seconds(scheduling.max_running_time)
        if not 0 < running_s <= TIME_S_MAX:
            problem = f"must be more than 0s and at most {TIME_S_MAX}s, not {scheduling.max_running_time}"
            found.add((*at, "maxRunningTime"), problem, f"{MAX_RUNNING_S_DEFAULT}s")
    if scheduling.max_wait_time is not None:
        wait_s = seconds(scheduling.max_wait_time)
        if not MAX_WAIT_S_MIN <= wait_s <= TIME_S_MAX:
            problem = f"must be at least {MAX_WAIT_S_MIN}s and at most {TIME_S_MAX}s, not {scheduling.max_wait_time}"
            found.add((*at, "maxWaitTime"), problem, f"{MAX_WAIT_S_MIN}s")
    return running_s, wait_s


def check_account(training: TrainingInput, found: Findings) -> None:
    account = training.service_account
    if account is not None and not _EMAIL.fullmatch(account):
        problem = f"must be the e-mail address of a service account, not {given(account)}"
        found.add((TRAINING_INPUT, "serviceAccount"), problem, _example("serviceAccount"))


def _required(name: str, found: Findings) -> None:
    found.add((TRAINING_INPUT, name), "is required", _example(name))


def _example(name: str) -> object:
    return example_of((TRAINING_INPUT, name))


def _is_uri(uri: str, pattern: re.Pattern[str]) -> bool:
    """Not only of the right form: no step of the path may lead out of it, on no file system it is copied to."""
    return (
        len(uri) <= _URI_CHARS_MAX
        and pattern.fullmatch(uri) is not None
        and uri.isprintable()
        and not any(step in (".", "..") for step in uri.split("/"))
    )


def _dotted(module: str) -> object:
    """`trainer/task.py` → `trainer.task`."""
    dotted = re.sub(r"\.py$", "", module).strip("./").replace("/", ".").replace("-", "_")
    return dotted if _MODULE.fullmatch(dotted) else _example("pythonModule")
