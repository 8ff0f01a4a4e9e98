"""The names of a job: its id, and the name for people that Vertex AI's format has."""

from __future__ import annotations

import json
from collections.abc import Mapping

from trainmaster.core.model.job import Job


def display_name(job: Job) -> str:
    """Return the display name of a job of Vertex AI's format; empty: AI Platform has only ids.

    Raises nothing: a state is stored whatever its job's document contains.
    """
    try:
        document = json.loads(job.spec_json)
    except ValueError:
        return ""
    if not isinstance(document, Mapping):
        return ""
    name = document.get("displayName", document.get("display_name"))
    return name if isinstance(name, str) else ""


def lower_case_names(job: Job) -> tuple[str, ...]:
    """Return the names by which lists find the job, in lower case, each once.

    A trial has only its id: its document, with the display name, is that of its tuning job.
    """
    names = (job.job_id, "" if job.trial_of else display_name(job))
    return tuple(dict.fromkeys(name.lower() for name in names if name))
