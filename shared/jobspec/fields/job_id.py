"""Job ids: the rule, and how an uploaded file gets one when it names none."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Final

JOB_ID_CHARS_MAX: Final = 128
JOB_ID: Final = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{JOB_ID_CHARS_MAX - 1}}}")
"""Source: the service's rule: letters, digits and underscores, a letter first, at most 128."""

_SUFFIX_CHARS_MAX: Final = 64


def job_id_from(name: str, suffix: str) -> str:
    """`jobs/digits.yaml` and `20261121T030000` → `digits_20261121T030000`. The suffix survives any length of name."""
    tail = _legal(suffix)[-_SUFFIX_CHARS_MAX:]
    head = _legal(re.sub(r"\.(ya?ml|json)$", "", PurePosixPath(name).name, flags=re.IGNORECASE))
    if not head[:1].isalpha():
        head = f"job_{head}" if head else "job"
    return f"{head[: JOB_ID_CHARS_MAX - 1 - len(tail)]}_{tail}" if tail else head[:JOB_ID_CHARS_MAX]


def nearest_legal(job_id: str) -> str:
    """What the sender may have had in mind. Clients mended ids alike: tensorflow_cloud - to _, Airflow a z first."""
    return job_id_from(job_id, "")


def _legal(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", text).strip("_")
