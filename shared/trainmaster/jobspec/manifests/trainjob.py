"""TrainJob (`trainer.kubeflow.org/v1alpha1`) with its runtime.

The runtime is in the same file, or is a known one that the job names.

Each `Level` lists the fields of one mapping: those that are converted; those that have no effect
here (`dropped`); and those that no job can have (`refused`).

Source: kubeflow/trainer, pkg/apis/trainer/v1alpha1/trainjob_types.go and manifests/base/runtimes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

from trainmaster.jobspec.manifests.environment import MASTER
from trainmaster.jobspec.manifests.findings import Count, Findings, Level
from trainmaster.jobspec.manifests.job_file import Manifest, ManifestContent
from trainmaster.jobspec.manifests.jobset import JobSetFields, convert_groups, read_group
from trainmaster.jobspec.manifests.roles import scheduling
from trainmaster.jobspec.manifests.run_policy import NOT_SUSPENDED
from trainmaster.jobspec.manifests.torch_environment import MASTER_PORT, torch_variables

CONTAINER: Final = "node"
RUNTIME_KINDS: Final = ("ClusterTrainingRuntime", "TrainingRuntime")
TORCH_IMAGE: Final = "pytorch/pytorch:2.13.0-cuda13.0-cudnn9-runtime"
_TORCH_POD: Final = {"spec": {"containers": [{"name": CONTAINER, "image": TORCH_IMAGE}]}}
_TORCH_JOB: Final = {"name": CONTAINER, "template": {"spec": {"template": _TORCH_POD}}}
STOCK_RUNTIMES: Final[Mapping[str, Mapping[str, Any]]] = {
    "torch-distributed": {
        "mlPolicy": {"numNodes": 1, "torch": {}},
        "template": {"spec": {"replicatedJobs": [_TORCH_JOB]}},
    }
}
"""Runtimes that every installation of the Trainer has.

Source: manifests/base/runtimes/torch_distributed.yaml.
"""


class TrainJobFields(Level):
    runtime_ref: Mapping[str, Any] = {}
    trainer: Mapping[str, Any] = {}
    active_deadline_seconds: Count | None = None

    dropped: ClassVar[Mapping[str, str]] = {"managedBy": "Trainmaster manages its jobs itself."}
    refused: ClassVar[Mapping[str, str]] = {
        "initializer": "load data and model at the beginning of the program",
        "suspend": NOT_SUSPENDED,
        **dict.fromkeys(
            ("runtimePatches", "podTemplateOverrides", "podSpecOverrides"),
            "write the runtime into the same file",
        ),
        "labels": "set them in metadata",
        "annotations": "set them in metadata",
    }


class Trainer(Level):
    image: str | None = None
    command: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: tuple[Mapping[str, Any], ...] = ()
    num_nodes: Count | None = None
    num_proc_per_node: str | int | None = None
    resources_per_node: Mapping[str, Any] | None = None


class RuntimeSpec(Level):
    ml_policy: Mapping[str, Any] = {}
    template: Mapping[str, Any] = {}

    dropped: ClassVar[Mapping[str, str]] = {
        "podGroupPolicy": "All VMs of a job are requested together."
    }


class MlPolicy(Level):
    num_nodes: Count = 1
    torch: Mapping[str, Any] | None = None
    jax: Mapping[str, Any] | None = None
    xgboost: Mapping[str, Any] | None = None

    refused: ClassVar[Mapping[str, str]] = {
        "mpi": "mpirun on several machines needs SSH between containers",
        "flux": "a job cannot be a cluster for other jobs",
    }


class TorchPolicy(Level):
    num_proc_per_node: str | int | None = None

    refused: ClassVar[Mapping[str, str]] = {"elasticPolicy": "the number of nodes is fixed"}


def convert_trainjob(
    manifest: Manifest, findings: Findings, others: Sequence[Mapping[str, Any]] = ()
) -> ManifestContent:
    """Convert a TrainJob.

    `others`: the other objects of the file, among which its runtime may be.
    """
    fields = findings.read(manifest.spec, "spec", TrainJobFields)
    runtime = _find_runtime(fields.runtime_ref.get("name"), others, findings)
    if runtime is None:
        return ManifestContent(())
    spec = findings.read(runtime, "runtime.spec", RuntimeSpec)
    policy = findings.read(spec.ml_policy, "runtime.spec.mlPolicy", MlPolicy)
    trainer = findings.read(fields.trainer, "spec.trainer", Trainer)
    nodes = trainer.num_nodes or policy.num_nodes
    jobset_spec = spec.template.get("spec")
    jobs = _list(_mapping(jobset_spec).get("replicatedJobs"))
    path = "runtime.spec.template.spec.replicatedJobs"
    if len(jobs) != 1 or not isinstance(jobs[0], Mapping):
        findings.refuse(
            path, f"has {len(jobs)} jobs; a runtime has one, which trains", "the job node only"
        )
        return ManifestContent(())
    group = read_group(_with_trainer(jobs[0], trainer, nodes), f"{path}[0]", findings)
    injected = _variables(policy, trainer, nodes, findings)
    jobset = findings.read(jobset_spec, "runtime.spec.template.spec", JobSetFields)
    content = convert_groups(manifest, jobset, [group], injected, CONTAINER, findings)
    if fields.active_deadline_seconds is None:
        return content
    deadline = scheduling(fields.active_deadline_seconds, "spec.activeDeadlineSeconds", findings)
    return ManifestContent(content.roles, deadline, content.extension)


def _find_runtime(
    name: object, others: Sequence[Mapping[str, Any]], findings: Findings
) -> Mapping[str, Any] | None:
    """Return the spec of the runtime of this name: in the file, or a stock runtime.

    None, with a problem, if there is none.
    """
    for other in others:
        is_runtime = other.get("kind") in RUNTIME_KINDS
        if is_runtime and _mapping(other.get("metadata")).get("name") == name:
            return _mapping(other.get("spec"))
    if isinstance(name, str) and name in STOCK_RUNTIMES:
        reason = (
            "The file does not contain this runtime, so that of Kubeflow Trainer with the same name"
            " is used."
        )
        findings.substitute(
            "spec.runtimeRef", name, f"{TORCH_IMAGE}, unless the trainer names an image", reason
        )
        return STOCK_RUNTIMES[name]
    problem = f"names the runtime {name}, which the file does not contain"
    example = (
        "add the ClusterTrainingRuntime as another document of the file, or use"
        f" {', '.join(STOCK_RUNTIMES)}"
    )
    findings.refuse("spec.runtimeRef.name", problem, example)
    return None


def _with_trainer(job: Mapping[str, Any], trainer: Trainer, nodes: int) -> dict[str, Any]:
    """Return the runtime's replicated job with the settings of `spec.trainer`.

    Kubeflow's controller does the same.
    """
    template = _mapping(job.get("template"))
    batch = _mapping(template.get("spec"))
    pod_template = _mapping(batch.get("template"))
    pod = _mapping(pod_template.get("spec"))
    containers = [_mapping(container) for container in _list(pod.get("containers"))]
    if not containers:
        containers = [{"name": CONTAINER}]
    named = [container for container in containers if container.get("name") == CONTAINER]
    target = named[0] if named else containers[0]
    for name in ("image", "command", "args"):
        value = getattr(trainer, name)
        if value:
            target[name] = value
    if trainer.env:
        own_names = [item.get("name") for item in trainer.env]
        of_runtime = [_mapping(item) for item in _list(target.get("env"))]
        kept = [item for item in of_runtime if item.get("name") not in own_names]
        target["env"] = [*kept, *trainer.env]
    if trainer.resources_per_node is not None:
        target["resources"] = trainer.resources_per_node
    pod_template["spec"] = {**pod, "containers": containers}
    batch |= {"template": pod_template, "parallelism": nodes, "completions": nodes}
    return {**job, "template": {**template, "spec": batch}}


def _mapping(value: object) -> dict[str, Any]:
    """Return a copy of a mapping; empty for any other value."""
    return dict(value) if isinstance(value, Mapping) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _variables(
    policy: MlPolicy, trainer: Trainer, nodes: int, findings: Findings
) -> dict[str, str]:
    """Return the variables that the runtime sets in every container."""
    if policy.jax is not None:
        return {
            "JAX_NUM_PROCESSES": "$(WORLD_SIZE)",
            "JAX_PROCESS_ID": "$(RANK)",
            "JAX_COORDINATOR_ADDRESS": f"{MASTER}:{MASTER_PORT}",
        }
    if policy.xgboost is not None:
        limits = _mapping((trainer.resources_per_node or {}).get("limits"))
        gpus = str(limits.get("nvidia.com/gpu", 0))
        workers_per_node = max(1, int(gpus)) if gpus.isdecimal() else 1
        return {
            "DMLC_TRACKER_URI": MASTER,
            "DMLC_TRACKER_PORT": MASTER_PORT,
            "DMLC_TASK_ID": "$(RANK)",
            "DMLC_NUM_WORKER": str(nodes * workers_per_node),
        }
    if policy.torch is None:
        return {}
    torch = findings.read(policy.torch, "runtime.spec.mlPolicy.torch", TorchPolicy)
    nproc = trainer.num_proc_per_node
    if nproc is None:
        nproc = torch.num_proc_per_node
    variables = torch_variables(nodes, nproc, "spec.trainer.numProcPerNode", findings)
    # The others are set by the operator of PyTorchJobs, and not by the Trainer.
    return {name: value for name, value in variables.items() if name.startswith("PET_")}
