"""The job format: what a submitted document means, or everything that is wrong with it.

    parse_document    bytes of a job file or message → a mapping, safely
    read_document     the same; a manifest of Kubeflow or JobSet is converted to a job file
    accept            a mapping → spec, labels and plan
    job_id_from       an object's name → a legal job id
    read_exit_policy  a mapping → an exit policy
    read_labels       a mapping → labels

All but `job_id_from` raise InvalidJob with every problem at once. Sub-packages:

    formats    the document models, field for field; docs/job-format.md describes them
    reading    document → model: limits, kinds of documents, names, problems
    catalog    tables of machine types, TPUs, scale tiers, runtimes and regions
    fields     rules of single fields that both formats share
    machines   a role's request → its hardware
    resolve    model → ResolvedSpec, the meaning of a document in either format
    manifests  manifests of Kubeflow and JobSet → job files
"""

from __future__ import annotations

from trainmaster.jobspec.accept import AcceptedSpec, accept
from trainmaster.jobspec.fields.exit_policy import read_exit_policy
from trainmaster.jobspec.fields.job_id import JOB_ID, job_id_from
from trainmaster.jobspec.fields.labels import read_labels
from trainmaster.jobspec.job_document import read_document
from trainmaster.jobspec.problems import InvalidJob, Problem
from trainmaster.jobspec.reading.parse_document import parse_document

__all__ = [
    "JOB_ID",
    "AcceptedSpec",
    "InvalidJob",
    "Problem",
    "accept",
    "job_id_from",
    "parse_document",
    "read_document",
    "read_exit_policy",
    "read_labels",
]
