"""Read what users submit: a job file, or a manifest of Kubeflow or JobSet, which is converted to a job file."""

from __future__ import annotations

from collections.abc import Mapping

from trainmaster.jobspec.reading.parse_document import parse_document


def read_document(data: bytes, name: str, region: str | None = None) -> Mapping[str, object]:
    """Return the job file. Raises InvalidJob.

    `name`: file or message, for the problem's text. `region`: where a manifest runs; None: the manifest names it.
    """
    document = parse_document(data, name)
    if not is_manifest(document):
        return document
    from trainmaster.jobspec.manifests.convert import convert  # only manifests need its models

    return convert(document, region)


def is_manifest(document: Mapping[str, object]) -> bool:
    """Return whether the document is an object of Kubernetes, or a list of them."""
    return "apiVersion" in document and "kind" in document
