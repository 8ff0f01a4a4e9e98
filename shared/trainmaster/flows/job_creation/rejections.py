"""Rejections: submissions that did not become jobs.

The sender of a message or an uploaded file gets no answer, so what was wrong is stored, for
`trainmaster why`, the console and the schedules.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from datetime import datetime
from typing import Final

from trainmaster.errors import RejectedError
from trainmaster.ports import Incidents, Rejection

PROBLEMS_KEPT: Final = 100
PROBLEM_CHARS_KEPT: Final = 2000
"""What is stored of a refusal: a document in Firestore has at most 1 MiB, and a job file may have
10,000 problems.
"""


def reject_submission(
    submission: str, job_id: str | None, problems: Sequence[str], now: datetime, store: Incidents
) -> RejectedError:
    """Store the rejection, and return the error that ends the handling of the message.

    `submission`: the object and its generation, or a hash of the message. `job_id` None: it cannot
    be read.
    """
    key = hashlib.sha256(json.dumps([submission, problems]).encode()).hexdigest()[:32]
    kept = tuple(problem[:PROBLEM_CHARS_KEPT] for problem in problems[:PROBLEMS_KEPT])
    store.reject(Rejection(key, submission, job_id, kept, now))
    return RejectedError(f"{submission} is refused: {' '.join(problems)}")
