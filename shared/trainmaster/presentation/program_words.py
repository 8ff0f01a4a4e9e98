"""What a job runs, in one line."""

from __future__ import annotations

import json
import shlex
from typing import Final

from trainmaster.core.model.job import Job
from trainmaster.core.rules.remedies import FOLDER_MODULE
from trainmaster.jobspec.reading.field_names import EXTENSION, PACKED_FROM

CHARS_MAX: Final = 120
"""Longest line; a longer one is cut."""
COMMIT_CHARS: Final = 12
"""Characters of a commit's id that are shown."""


def folder_words(job: Job) -> str:
    """Return the folder and the commit that a program was packed from: `digits at 4f2a9c0d5b6e`.

    Empty: the job's program is no folder, or the client did not say. Files that differed from the
    commit are mentioned.
    """
    extension = json.loads(job.spec_json).get(EXTENSION)
    packed = extension.get(PACKED_FROM) if isinstance(extension, dict) else None
    if not isinstance(packed, dict) or not isinstance(packed.get("folder"), str):
        return ""
    commit = packed.get("commit")
    words = str(packed["folder"])
    if isinstance(commit, str) and commit:
        words += f" at {commit[:COMMIT_CHARS]}"
    return f"{words}, with changes" if packed.get("changed") else words


def program_words(job: Job) -> str:
    """Return the command, module or image that the job runs.

    A folder: `torchrun train.py`; a package: `python -m trainer.task`; a container: `trainer:v2`;
    a built-in algorithm: its name.
    """
    program = job.plan.program
    if job.plan.origin.algorithm is not None:
        words = job.plan.origin.algorithm.name
    elif program.container is not None:
        image = program.container.image.rpartition("/")[2]
        words = " ".join([image, shlex.join(program.container.command)]).strip()
    elif program.python_module == FOLDER_MODULE:
        words = shlex.join(program.args)
    else:
        words = f"python -m {program.python_module}"
    return words if len(words) <= CHARS_MAX else f"{words[: CHARS_MAX - 1]}…"
