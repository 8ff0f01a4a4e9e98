"""PyTorchJob, TFJob, XGBoostJob (`kubeflow.org/v1`) and MPIJob (`kubeflow.org/v2beta1`), converted
to roles of a job.

A `Level` declares the fields of one mapping of a manifest; `refused`, `moved` and `dropped` are
those that are errors, have another place today, or have no effect here. Problems are collected in
`findings`, so that a user gets all of them at once.

Source: the types, defaults and controllers of kubeflow/training-operator v1.9.0 and
kubeflow/mpi-operator v0.8.2.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from trainmaster.jobspec.manifests.findings import Findings, Level
from trainmaster.jobspec.manifests.job_file import Manifest, ManifestContent
from trainmaster.jobspec.manifests.pods import convert_pod
from trainmaster.jobspec.manifests.roles import (
    Role,
    TaskType,
    restart_fields,
    scheduling,
    split_first,
)
from trainmaster.jobspec.manifests.run_policy import UNDER_SPEC, RunPolicy, check_run_policy
from trainmaster.jobspec.manifests.torch_environment import (
    OF_ONE_POD,
    ElasticPolicy,
    elastic_variables,
    torch_variables,
)

POLICIES: Final = ("Always", "OnFailure", "Never", "ExitCode")
"""Restart policies of the operator."""
_COUNT_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Kind:
    """The properties in which the kinds of manifests differ."""

    replicas_field: str
    """Field of `spec` with the pods of each replica type."""
    container: str
    """Name of the container that runs the program."""
    restart_policy: str
    """Policy of a role that names none."""
    types: Mapping[str, TaskType]
    """Replica type → task type here."""


PYTORCH: Final = Kind(
    replicas_field="pytorchReplicaSpecs",
    container="pytorch",
    restart_policy="OnFailure",
    types={"Master": "chief", "Worker": "worker"},
)
TENSORFLOW: Final = Kind(
    replicas_field="tfReplicaSpecs",
    container="tensorflow",
    restart_policy="Never",
    types={
        "Chief": "chief",
        "Master": "chief",
        "Worker": "worker",
        "PS": "ps",
        "Evaluator": "evaluator",
    },
)
XGBOOST: Final = Kind(
    replicas_field="xgbReplicaSpecs",
    container="xgboost",
    restart_policy="Never",
    types={"Master": "chief", "Worker": "worker"},
)
MPI: Final = Kind(
    replicas_field="mpiReplicaSpecs",
    container="mpi",
    restart_policy="Never",
    types={"Launcher": "chief", "Worker": "worker"},
)


class ReplicaSpec(Level):
    replicas: int = 1
    restart_policy: str | None = None
    template: Mapping[str, Any] = {}

    refused: ClassVar[Mapping[str, str]] = {"scale": "it is set by the operator"}


class JobFields(Level):
    run_policy: Mapping[str, Any] = {}
    nproc_per_node: str | int | None = None
    elastic_policy: Mapping[str, Any] | None = None
    success_policy: str = ""
    pytorch_replica_specs: Mapping[str, Any] = {}
    tf_replica_specs: Mapping[str, Any] = {}
    xgb_replica_specs: Mapping[str, Any] = {}

    refused: ClassVar[Mapping[str, str]] = {"enableDynamicWorker": "the number of workers is fixed"}
    moved: ClassVar[Mapping[str, str]] = UNDER_SPEC


def convert_pytorch(manifest: Manifest, findings: Findings) -> ManifestContent:
    """Convert a PyTorchJob. An elastic policy becomes the job's smallest number of replicas."""
    fields = _read_fields(
        manifest, findings, "pytorchReplicaSpecs", "nprocPerNode", "elasticPolicy"
    )
    counts = _counts(fields.pytorch_replica_specs, PYTORCH, findings)
    pods = sum(counts.values())
    workers = counts.get("Worker", 0)
    extension: dict[str, Any] = {}
    injected = torch_variables(pods, fields.nproc_per_node, "spec.nprocPerNode", findings)
    if pods == 1:
        injected |= OF_ONE_POD
    if fields.elastic_policy is not None:
        elastic = findings.read(fields.elastic_policy, "spec.elasticPolicy", ElasticPolicy)
        injected |= elastic_variables(elastic, manifest.name, workers, findings)
        if elastic.min_replicas is not None and elastic.min_replicas < workers:
            # The policy counts workers; a job counts all its replicas.
            min_replicas = elastic.min_replicas + (pods - workers)
            extension = {"elastic": {"minReplicas": min_replicas}}
            findings.origins["trainmaster.elastic"] = "spec.elasticPolicy"
    roles = _roles(manifest, fields.pytorch_replica_specs, PYTORCH, injected, findings)
    if "Master" not in counts and workers > 1:
        reason = (
            "The job succeeds when worker 0, here called chief, has exited 0, and not when all"
            " workers have."
        )
        path = "spec.pytorchReplicaSpecs.Worker"
        findings.substitute(path, f"{workers} workers", f"chief and {workers - 1} workers", reason)
    content = _content(roles, fields.run_policy, pods, findings)
    return replace(content, extension={**content.extension, **extension})


def convert_tensorflow(manifest: Manifest, findings: Findings) -> ManifestContent:
    """Convert a TFJob."""
    fields = _read_fields(
        manifest, findings, "tfReplicaSpecs", "successPolicy", "enableDynamicWorker"
    )
    counts = _counts(fields.tf_replica_specs, TENSORFLOW, findings)
    workers = counts.get("Worker", 0)
    if "Chief" in counts and "Master" in counts:
        findings.refuse(
            "spec.tfReplicaSpecs.Master", "cannot be combined with Chief", "one of them"
        )
    if fields.success_policy == "AllWorkers" and workers > 1:
        problem = "is AllWorkers; a job here succeeds when its chief, or worker 0, has exited 0"
        findings.refuse("spec.successPolicy", problem, "leave it out")
    roles = _roles(manifest, fields.tf_replica_specs, TENSORFLOW, injected={}, findings=findings)
    if not {"Chief", "Master"} & set(counts) and workers:
        path = "spec.tfReplicaSpecs.Worker"
        reason = (
            "TF_CONFIG calls worker 0 the chief. The job succeeds when it has exited 0, as in"
            " Kubeflow."
        )
        findings.substitute(path, f"{workers} workers", f"chief and {workers - 1} workers", reason)
    if "Evaluator" in counts:
        path = "spec.tfReplicaSpecs.Evaluator"
        reason = (
            "TF_CONFIG's cluster has no evaluator, as TensorFlow expects; its task is evaluator."
        )
        findings.substitute(path, "a member of the cluster", "outside the cluster", reason)
    return _content(roles, fields.run_policy, sum(counts.values()), findings)


def convert_xgboost(manifest: Manifest, findings: Findings) -> ManifestContent:
    """Convert an XGBoostJob, which has a master."""
    fields = _read_fields(manifest, findings, "xgbReplicaSpecs")
    counts = _counts(fields.xgb_replica_specs, XGBOOST, findings)
    if "Master" not in counts:
        findings.refuse(
            "spec.xgbReplicaSpecs.Master", "is required", "Master: {replicas: 1, template: …}"
        )
    pods = sum(counts.values())
    injected = {"PYTHONUNBUFFERED": "1"}
    if pods == 1:
        injected |= OF_ONE_POD
    roles = _roles(manifest, fields.xgb_replica_specs, XGBOOST, injected, findings)
    return _content(roles, fields.run_policy, pods, findings)


def _read_fields(manifest: Manifest, findings: Findings, *own: str) -> JobFields:
    """Return the fields of `spec`.

    `own`: the names that only this kind of manifest has; those of other kinds are refused.
    """
    kept: dict[str, Any] = {}
    for name, value in manifest.spec.items():
        if name in ("runPolicy", *UNDER_SPEC, *own):
            kept[name] = value
        else:
            problem = f"is not a field of {manifest.kind}"
            findings.refuse(f"spec.{name}", problem, f"one of runPolicy, {', '.join(own)}")
    return findings.read(kept, "spec", JobFields)


def _counts(specs: Mapping[str, Any], kind: Kind, findings: Findings) -> dict[str, int]:
    """Return the number of pods of each replica type, by its canonical name."""
    counts: dict[str, int] = {}
    path = f"spec.{kind.replicas_field}"
    for name, spec in specs.items():
        canonical = _canonical(name, kind)
        replicas = spec.get("replicas", 1) if isinstance(spec, Mapping) else 1
        if canonical is None:
            findings.refuse(
                f"{path}.{name}", "is not a replica type of this kind", " or ".join(kind.types)
            )
        elif not isinstance(replicas, int) or not 0 <= replicas <= _COUNT_MAX:
            findings.refuse(
                f"{path}.{name}.replicas", f"must be from 0 to {_COUNT_MAX}, not {replicas}", "1"
            )
        elif kind.types[canonical] == "chief" and replicas != 1:
            findings.refuse(f"{path}.{name}.replicas", f"must be 1, not {replicas}", "1")
        elif replicas:
            counts[canonical] = replicas
    if not counts:
        findings.refuse(path, "is required", f"{path}: {{Worker: {{replicas: 1, template: …}}}}")
    return counts


def _canonical(name: str, kind: Kind) -> str | None:
    """Return the name as this module has it; None: the kind has no such replica type.

    Source: the operator accepts replica types in any case.
    """
    return next((known for known in kind.types if known.lower() == name.lower()), None)


def _roles(
    manifest: Manifest,
    specs: Mapping[str, Any],
    kind: Kind,
    injected: Mapping[str, str],
    findings: Findings,
) -> list[Role]:
    """Return the roles of the replica types. Without a chief, worker 0 becomes one: the primary,
    whose success is the job's.

    `injected`: variables that the operator sets.
    """
    counts = _counts(specs, kind, Findings())  # drops the problems: the caller has reported them
    chiefs = [name.lower() for name in counts if kind.types[name] == "chief"]
    primary = chiefs[0] if chiefs else "worker"
    types = "|".join(name.lower() for name in kind.types)
    hosts = re.compile(
        rf"\b{re.escape(manifest.name)}-(?P<id>(?:{types})-[0-9]+)(?:\.[a-z0-9.-]*[a-z0-9])?"
    )
    names = manifest.names(hosts, f"{primary}-0", sum(counts.values()), injected)
    roles: list[Role] = []
    for written, spec in specs.items():
        name = _canonical(written, kind)
        if name not in counts:
            continue
        path = f"spec.{kind.replicas_field}.{written}"
        replica = findings.read(spec, path, ReplicaSpec)
        policy = replica.restart_policy or kind.restart_policy
        if policy not in POLICIES:
            findings.refuse(
                f"{path}.restartPolicy", f"is {policy}, which is not known", " or ".join(POLICIES)
            )
        pod = convert_pod(replica.template, f"{path}.template", kind.container, names, findings)
        if pod is None:
            continue
        if pod.is_tpu:
            problem = "requests TPUs; a slice is one replica here"
            findings.refuse(
                f"{pod.container_path}.resources", problem, "a JobSet with one pod per host"
            )
        role = Role(kind.types[name], counts[name], pod, policy, path)
        has_primary = role.task_type == "worker" and not chiefs
        roles += split_first(role) if has_primary else [role]
    return roles


def _content(
    roles: Sequence[Role], run_policy: Mapping[str, Any], pods: int, findings: Findings
) -> ManifestContent:
    policy = findings.read(run_policy, "spec.runPolicy", RunPolicy)
    limits = check_run_policy(policy, pods, findings)
    deadline = scheduling(
        policy.active_deadline_seconds, "spec.runPolicy.activeDeadlineSeconds", findings
    )
    restarts = restart_fields(roles, policy.backoff_limit, "spec.runPolicy.backoffLimit", findings)
    return ManifestContent(roles, {**deadline, **limits}, restarts)


class MpiFields(Level):
    mpi_replica_specs: Mapping[str, Any] = {}
    run_policy: Mapping[str, Any] = {}
    slots_per_worker: int = 1
    run_launcher_as_worker: bool = False

    moved: ClassVar[Mapping[str, str]] = UNDER_SPEC

    dropped: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("sshAuthMountPath", "launcherCreationPolicy", "mpiImplementation"),
        "Launcher and worker are one container, without SSH.",
    )


def convert_mpi(manifest: Manifest, findings: Findings) -> ManifestContent:
    """Convert an MPIJob of one worker: mpirun starts all its processes on the worker's machine."""
    fields = findings.read(manifest.spec, "spec", MpiFields)
    counts = _counts(fields.mpi_replica_specs, MPI, findings)
    workers = counts.get("Worker", 0)
    if fields.run_launcher_as_worker:
        workers += 1
    if "Launcher" not in counts:
        findings.refuse(
            "spec.mpiReplicaSpecs.Launcher", "is required", "Launcher: {replicas: 1, template: …}"
        )
    if workers > 1:
        problem = f"leads to {workers} workers; mpirun on several machines needs SSH between them"
        example = "one worker with all GPUs, or a PyTorchJob"
        findings.refuse("spec.mpiReplicaSpecs.Worker.replicas", problem, example)
    roles = _roles(manifest, fields.mpi_replica_specs, MPI, injected={}, findings=findings)
    by_type = {role.task_type: role for role in roles}
    launcher = by_type.get("chief")
    worker = by_type.get("worker")
    if launcher and worker:
        # The launcher's own machine is not used, so that nothing is substituted for it.
        unused = f"{launcher.pod.container_path}.resources"
        findings.substitutions[:] = [
            item for item in findings.substitutions if item["field"] != unused
        ]
        pod = replace(
            worker.pod, container=launcher.pod.container, container_path=launcher.pod.container_path
        )
        launcher = replace(launcher, pod=pod)
        reason = (
            "The launcher's command runs on a machine as the worker requests, with the launcher's"
            " image."
        )
        findings.substitute("spec.mpiReplicaSpecs", "launcher and worker", "one replica", reason)
    if launcher:
        reason = (
            "Without a hostfile, mpirun counts the cores of the machine as slots; -np in the"
            " command limits them."
        )
        findings.substitute(
            "spec.slotsPerWorker", str(fields.slots_per_worker), "the machine's cores", reason
        )
    return _content(
        [launcher] if launcher else [], fields.run_policy, sum(counts.values()), findings
    )
