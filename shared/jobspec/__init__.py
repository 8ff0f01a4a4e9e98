"""The job format: what a submitted document means, or everything that is wrong with it.

    parse_document   bytes of a job file or message → a mapping, safely
    accept           a mapping → spec, labels and plan; or InvalidJob with every problem at once
    job_id_from      an object's name → a legal job id
    read_exit_policy a mapping → an exit policy by itself
    read_labels      a mapping → its labels by themselves

The tables a user may want to look at: `tiers`, `machines`, `tpus`, `runtimes`, `regions`, and `unsupported` for what is
not there. `model`, `vertex_model` and `extension_model` are the format itself, field for field; docs/job-format.md is
its page.
"""

from __future__ import annotations

from shared.jobspec.accept import AcceptedSpec, accept
from shared.jobspec.fields.exit_policy import read_exit_policy
from shared.jobspec.fields.job_id import JOB_ID, job_id_from
from shared.jobspec.fields.labels import read_labels
from shared.jobspec.reading.parse_document import parse_document
from shared.jobspec.reading.problems import InvalidJob, Problem

__all__ = [
    "JOB_ID",
    "AcceptedSpec",
    "InvalidJob",
    "Problem",
    "accept",
    "job_id_from",
    "parse_document",
    "read_exit_policy",
    "read_labels",
]
