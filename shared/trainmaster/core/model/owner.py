"""Who submitted a job, derived from the source of its submission: docs/interfaces.md section 2.

The publisher of a message to the topic `submit` may state any source, also one that names a person.
Only the owner of a job from the API is verified: `Job.through_api`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from trainmaster.core.model.job import Job

_CLAIM: Final = re.compile(r"(?:cli|schedule|console):[^/]*/([\w.+%'@-]{1,254})")
"""A source that names the user of the submitting client: `cli:KEY/USER`."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The user who submitted a job."""

    user: str = ""
    """E-mail address, or a name on the user's own machine; empty: unknown."""
    is_verified: bool = False
    """Whether the API has verified the user. Otherwise the submitter's client said so."""

    @property
    def words(self) -> str:
        return self.user if self.is_verified or not self.user else f"{self.user} (unverified)"


def owner(job: Job) -> Owner:
    """Return who submitted the job.

    Nothing in the job file counts, and nothing changes it later.
    """
    if job.submitted_by:
        return Owner(job.submitted_by, is_verified=True)
    claim = None if job.through_api else _CLAIM.fullmatch(job.submission)
    return Owner(claim[1]) if claim else Owner()
