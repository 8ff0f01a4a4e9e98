"""What a job runs, in one line."""

from __future__ import annotations

import shlex
from typing import Final

from trainmaster.core.model.job import Job
from trainmaster.core.rules.remedies import FOLDER_MODULE

CHARS_MAX: Final = 120


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
