"""Read what all kinds of manifest have in common, and assemble the job file of a manifest.

    manifest ──► `read_manifest` ──► converter of its kind ──► `job_file` ──► job file

A manifest is a Kubernetes object that describes a training job, such as a PyTorchJob. What cannot
be converted is collected as findings: `refuse` reports an error; `drop` and `substitute` list what
the job does without, or gets instead; `origins` names the field of the manifest for each field of
the job file, so that errors in the job file name what the user wrote.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from trainmaster.core.model.label_rules import LABEL_CHARS_MAX, is_legal_job_label
from trainmaster.jobspec.formats.extension import CONVERTED_FROM
from trainmaster.jobspec.manifests.environment import Names
from trainmaster.jobspec.manifests.findings import Findings
from trainmaster.jobspec.manifests.pod_fields import Metadata
from trainmaster.jobspec.manifests.roles import Role, placement, service_account, worker_pools
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.parse_document import parse_document

ANNOTATION: Final = "trainmaster"
"""Annotation of a manifest with the fields that only Trainmaster has."""
ANNOTATION_PATH: Final = f"metadata.annotations.{ANNOTATION}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """One Kubernetes object."""

    api_version: str
    kind: str
    metadata: Metadata
    spec: Mapping[str, Any]
    extension: Mapping[str, Any]
    """Content of the annotation `trainmaster`, which has the fields of that name in a job file."""

    @property
    def name(self) -> str:
        return self.metadata.name or (self.metadata.generate_name or "").rstrip("-")

    @property
    def secrets(self) -> frozenset[str]:
        """Names of the variables that `trainmaster.secrets` defines."""
        secrets = self.extension.get("secrets")
        return frozenset(secrets) if isinstance(secrets, Mapping) else frozenset()

    def names(
        self,
        hosts: re.Pattern[str],
        primary: str,
        pods: int,
        injected: Mapping[str, str],
    ) -> Names:
        """Return what the pods of this manifest call each other; for the arguments see `Names`."""
        return Names(hosts, primary, pods, self.secrets, injected=injected)


@dataclass(frozen=True, slots=True)
class ManifestContent:
    """The content of a manifest, independent of its kind."""

    roles: Sequence[Role]
    scheduling: Mapping[str, Any] = field(default_factory=dict)
    extension: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `trainmaster` that follow from the kind of the manifest."""


Converter = Callable[[Manifest, Findings], ManifestContent]


def read_manifest(document: Mapping[str, Any], findings: Findings) -> Manifest:
    """Return the object, with its spec as it is. Problems are added to `findings`."""
    metadata = findings.read(document.get("metadata"), "metadata", Metadata)
    if not (metadata.name or metadata.generate_name):
        findings.refuse("metadata.name", "is required", "metadata: {name: digits}")
    for name in document:
        if name not in ("apiVersion", "kind", "metadata", "spec", "status"):
            findings.refuse(name, "is not a known field", "one of apiVersion, kind, metadata, spec")
    extension: Mapping[str, Any] = {}
    text = metadata.annotations.get(ANNOTATION)
    if text:
        try:
            extension = parse_document(text.encode(), ANNOTATION_PATH)
        except InvalidJob as invalid:
            findings.refuse(ANNOTATION_PATH, invalid.problems[0].problem, "region: us-central1")
    spec = document.get("spec")
    return Manifest(
        api_version=str(document.get("apiVersion")),
        kind=str(document.get("kind")),
        metadata=metadata,
        spec=spec if isinstance(spec, Mapping) else {},
        extension=extension,
    )


def job_file(
    manifest: Manifest, content: ManifestContent, region: str | None, findings: Findings
) -> dict[str, Any]:
    """Return the job file of a manifest. `region` overrides that of the manifest."""
    _drop_annotations(manifest.metadata, findings)
    spec: dict[str, Any] = {"workerPoolSpecs": worker_pools(content.roles, findings)}
    if content.scheduling:
        spec["scheduling"] = dict(content.scheduling)
    account = service_account(content.roles, manifest.metadata.annotations, findings)
    if account:
        spec["serviceAccount"] = account
    extension = {**placement(content.roles, findings), **content.extension, **manifest.extension}
    if region is not None:
        extension["region"] = region
    findings.origins |= {
        "jobId": "metadata.name",
        "displayName": "metadata.name",
        "labels": "metadata.labels",
        "jobSpec": "spec",
        "trainmaster": ANNOTATION_PATH,
        "trainmaster.region": f"{ANNOTATION_PATH}.region",
    }
    origin = f"{manifest.kind} {manifest.name} ({manifest.api_version})"
    converted_from = {"manifest": origin, "substitutions": findings.substitutions}
    document: dict[str, Any] = {"jobId": _job_id(manifest.metadata), "displayName": manifest.name}
    labels = _labels(manifest.metadata.labels, findings)
    if labels:
        document["labels"] = labels
    document["jobSpec"] = spec
    document["trainmaster"] = {**extension, CONVERTED_FROM: converted_from}
    return document


def _job_id(metadata: Metadata) -> str:
    """Return the job id of a name.

    A generated name ends in the time, because job ids are used once.
    """
    if metadata.name:
        return _underscored(metadata.name)
    prefix = (metadata.generate_name or "").rstrip("-")
    return f"{_underscored(prefix)}_{{time}}"


def _underscored(name: str) -> str:
    return name.replace("-", "_").replace(".", "_")


def _labels(labels: Mapping[str, str], findings: Findings) -> dict[str, str]:
    kept: dict[str, str] = {}
    for key, value in labels.items():
        if is_legal_job_label(key, value):
            kept[key] = value
        else:
            reason = (
                f"Labels of jobs have at most {LABEL_CHARS_MAX} of a-z, 0-9, _ and - in key and"
                " value."
            )
            findings.drop(f"metadata.labels[{key}]", value or '""', reason)
    return kept


def _drop_annotations(metadata: Metadata, findings: Findings) -> None:
    used = (
        ANNOTATION,
        "iam.gke.io/gcp-service-account",
        "kubectl.kubernetes.io/last-applied-configuration",
    )
    for name, value in metadata.annotations.items():
        if name not in used:
            findings.drop(
                f"metadata.annotations[{name}]", value or '""', "Jobs here have no annotations."
            )
