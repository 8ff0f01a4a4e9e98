"""Convert a manifest of Kubeflow or JobSet to a job file in Vertex AI's format.

    read_manifest → converter of the kind (roles, restarts, limits) → job_file → accept, as a check

The job file lists every approximation under `trainmaster.convertedFrom`; the job shows them as
substitutions. docs/kubeflow.md has the table of all fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.manifests.findings import Findings
from trainmaster.jobspec.manifests.job_file import Converter, job_file, read_manifest
from trainmaster.jobspec.manifests.jobset import convert_jobset
from trainmaster.jobspec.manifests.training_operator import (
    convert_mpi,
    convert_pytorch,
    convert_tensorflow,
    convert_xgboost,
)
from trainmaster.jobspec.manifests.trainjob import RUNTIME_KINDS, convert_trainjob
from trainmaster.jobspec.problems import InvalidJob, Problem

KUBEFLOW: Final = "kubeflow.org/v1"
MPI: Final = "kubeflow.org/v2beta1"
TRAINER: Final = "trainer.kubeflow.org/v1alpha1"
JOBSET: Final = "jobset.x-k8s.io/v1alpha2"
_CONVERTERS: Final[Mapping[tuple[str, str], Converter]] = {
    (KUBEFLOW, "PyTorchJob"): convert_pytorch,
    (KUBEFLOW, "TFJob"): convert_tensorflow,
    (KUBEFLOW, "XGBoostJob"): convert_xgboost,
    (MPI, "MPIJob"): convert_mpi,
    (JOBSET, "JobSet"): convert_jobset,
}
_KINDS: Final = ", ".join(
    f"{kind} ({version})" for version, kind in (*_CONVERTERS, (TRAINER, "TrainJob"))
)


def convert(document: Mapping[str, object], region: str | None = None) -> dict[str, Any]:
    """Return the job file of a manifest.

    Raises InvalidJob with every problem and its path in the manifest.

    `region` overrides the region that the manifest names.
    """
    training, others = _find_job(_objects(document))
    findings = Findings()
    manifest = read_manifest(training, findings)
    convert_kind = _find_converter(manifest.api_version, manifest.kind, others)
    content = convert_kind(manifest, findings)
    result = job_file(manifest, content, region, findings)
    findings.raise_if_any()
    _check(result, findings)
    return result


def _objects(document: Mapping[str, object]) -> list[Mapping[str, Any]]:
    """Return the objects of a Kubernetes List, or the only object."""
    if document.get("kind") != "List":
        return [document]
    items = document.get("items")
    if not isinstance(items, list):
        return []
    return [item for item in items if isinstance(item, Mapping)]


def _find_job(
    objects: Sequence[Mapping[str, Any]],
) -> tuple[Mapping[str, Any], list[Mapping[str, Any]]]:
    """Return the training job, and the runtimes in the same file.

    Raises InvalidJob for other objects.
    """
    jobs = [item for item in objects if item.get("kind") not in RUNTIME_KINDS]
    if len(jobs) != 1:
        kinds = ", ".join(str(item.get("kind")) for item in jobs) or "none"
        problem = (
            f"has {len(jobs)} objects besides runtimes ({kinds}); it must have one training job"
        )
        raise InvalidJob(
            [Problem("manifest", problem, example=f"one object of these kinds: {_KINDS}")]
        )
    return jobs[0], [item for item in objects if item is not jobs[0]]


def _find_converter(api_version: str, kind: str, others: Sequence[Mapping[str, Any]]) -> Converter:
    if (api_version, kind) == (TRAINER, "TrainJob"):
        return lambda manifest, findings: convert_trainjob(manifest, findings, others)
    converter: Callable[..., Any] | None = _CONVERTERS.get((api_version, kind))
    if converter is None:
        problem = f"is {kind} of {api_version}, which is not supported"
        raise InvalidJob([Problem("kind", problem, example=f"one of {_KINDS}")])
    return converter


def _check(result: Mapping[str, Any], findings: Findings) -> None:
    """Check the job file like a submitted one.

    An id with a placeholder for the time is not checked.
    """
    without_id = {name: value for name, value in result.items() if name != "jobId"}
    job_id = str(result["jobId"])
    if "{time" in job_id:
        job_id = "job"
    try:
        accept(without_id, default_job_id=job_id)
    except InvalidJob as invalid:
        raise InvalidJob(findings.at_origin(problem) for problem in invalid.problems) from None
