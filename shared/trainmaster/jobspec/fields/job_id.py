"""Job ids: the rule, and the id of an uploaded file that names none.

Commands that read a job import this module, and no format of job files.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from pathlib import PurePosixPath
from typing import Final

from trainmaster.core.model.tuning import tuning_job_id

JOB_ID_CHARS_MAX: Final = 128
JOB_ID: Final = re.compile(rf"[A-Za-z][A-Za-z0-9_]{{0,{JOB_ID_CHARS_MAX - 1}}}")
"""Source: AI Platform Training's rule: letters, digits and underscores, a letter first, at most 128
characters.
"""

_SUFFIX_CHARS_MAX: Final = 64
"""Characters of what follows a name, so that most of the name stays."""
_DIGEST_CHARS: Final = 8
"""Characters that stand for the letters which no id can have."""


def is_stored_id(job_id: str) -> bool:
    """Return whether a job, or a trial of a tuning job, can have the id.

    The store refuses to look for some other names, such as `__job__`.
    """
    return JOB_ID.fullmatch(tuning_job_id(job_id)) is not None


def job_id_from(name: str, suffix: str) -> str:
    """Make an id: `jobs/digits.yaml` and `20261121T030000` → `digits_20261121T030000`.

    A long name is shortened.
    """
    tail = _replace_illegal(suffix)[-_SUFFIX_CHARS_MAX:]
    head = _replace_illegal(
        re.sub(r"\.(ya?ml|json)$", "", PurePosixPath(name).name, flags=re.IGNORECASE)
    )
    if not head[:1].isalpha():
        head = f"job_{head}" if head else "job"
    if not tail:
        return head[:JOB_ID_CHARS_MAX]
    head = head[: JOB_ID_CHARS_MAX - len(tail) - len("_")]
    return f"{head}_{tail}"


def nearest_job_id(job_id: str) -> str:
    """Suggest a legal id.

    Clients correct ids in a similar way: tensorflow_cloud replaces - by _, Airflow puts a z first.
    """
    return job_id_from(job_id, suffix="")


def job_id_of_display_name(name: str, chars_max: int = JOB_ID_CHARS_MAX) -> str:
    """Make an id that names with other letters do not get: `学習ジョブ` → `job_3f0c1a2b`.

    Letters that no id can have leave a number that stands for the name.
    """
    head = nearest_job_id(name)
    if not any(char.isalnum() and not char.isascii() for char in _decomposed(name)):
        return head[:chars_max]
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_CHARS]
    return f"{head[: chars_max - _DIGEST_CHARS - 1]}_{digest}"


def _replace_illegal(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9_]+", "_", _decomposed(text)).strip("_")


def _decomposed(text: str) -> str:
    """Return the text with Latin letters without their accents: `Größe` → `Grosse`."""
    letters = unicodedata.normalize("NFKD", text.replace("ß", "ss"))
    return "".join(char for char in letters if not unicodedata.combining(char))
