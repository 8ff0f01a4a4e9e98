"""Labels by themselves, as a change of them brings them."""

from __future__ import annotations

from collections.abc import Mapping

from shared.jobspec.fields.common import check_labels
from shared.jobspec.reading.problems import Findings, InvalidJob, Spelling
from shared.jobspec.reading.read_model import read


def read_labels(document: Mapping[str, object]) -> dict[str, str]:
    """Of a job of which only these count. Raises InvalidJob with every problem."""
    spelling = Spelling()
    found = Findings(spelling)
    job, _ = read({"labels": document.get("labels")}, spelling, found)
    labels = dict(job.labels or {})
    check_labels(labels, found)
    if found.problems:
        raise InvalidJob(found.problems)
    return labels
