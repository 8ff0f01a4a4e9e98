"""JobSet (`jobset.x-k8s.io/v1alpha2`): one replicated job, or one with a driver of one pod.

Each `Level` lists the fields of one mapping: those that are converted; those that have no effect
here (`dropped`, with the reason); those that no job can have (`refused`, with what to do); and
those that stood elsewhere in earlier releases (`moved`).

Source: kubernetes-sigs/jobset, api/jobset/v1alpha2/jobset_types.go and its webhook's defaults.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

from trainmaster.core.machines.tpus import CHIPS_PER_HOST, TPU_VMS
from trainmaster.jobspec.manifests.environment import RANK, Names
from trainmaster.jobspec.manifests.findings import Count, Findings, Level
from trainmaster.jobspec.manifests.job_file import Manifest, ManifestContent
from trainmaster.jobspec.manifests.pod_fields import Template
from trainmaster.jobspec.manifests.pods import Pod, convert_pod
from trainmaster.jobspec.manifests.roles import Role, restart_fields, scheduling, split_first
from trainmaster.jobspec.manifests.run_policy import CLEAN, NOT_SUSPENDED

BACKOFF_LIMIT_DEFAULT: Final = 6
"""Source: Kubernetes' API reference, batch/v1 JobSpec."""


class JobSetFields(Level):
    replicated_jobs: tuple[Mapping[str, Any], ...] = ()
    network: Mapping[str, Any] | None = None
    success_policy: Mapping[str, Any] | None = None
    failure_policy: Mapping[str, Any] | None = None

    dropped: ClassVar[Mapping[str, str]] = {
        "ttlSecondsAfterFinished": CLEAN,
        "managedBy": "Trainmaster manages its jobs itself.",
        "coordinator": "The coordinator is the primary replica, MASTER_ADDR.",
    }
    refused: ClassVar[Mapping[str, str]] = {
        "startupPolicy": "all replicas start together",
        "suspend": NOT_SUSPENDED,
        "volumeClaimPolicies": "read from Cloud Storage",
    }


class Network(Level):
    subdomain: str | None = None

    dropped: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("publishNotReadyAddresses", "enableDNSHostnames"),
        "VMs always have host names, before the VMs exist.",
    )


class SuccessPolicy(Level):
    operator: str = "All"
    target_replicated_jobs: tuple[str, ...] = ()


class FailurePolicy(Level):
    max_restarts: Count = 0

    dropped: ClassVar[Mapping[str, str]] = {
        "restartStrategy": "A rerun starts when no replica runs any more."
    }
    refused: ClassVar[Mapping[str, str]] = {"rules": "name exit codes in trainmaster.exitPolicy"}


class ReplicatedJob(Level):
    name: str = ""
    replicas: Count = 1
    template: Mapping[str, Any] = {}
    network: Mapping[str, Any] | None = None
    """The network in JobSet 0.1, where each replicated job had its own."""

    dropped: ClassVar[Mapping[str, str]] = {
        "groupName": "Environment variables describe the whole job."
    }
    refused: ClassVar[Mapping[str, str]] = {"dependsOn": "submit the jobs one after another"}


class BatchJob(Level):
    parallelism: Count = 1
    completions: Count | None = None
    completion_mode: str = "Indexed"
    """Source: JobSet's webhook, which sets this default."""
    backoff_limit: Count = BACKOFF_LIMIT_DEFAULT
    active_deadline_seconds: Count | None = None
    template: Mapping[str, Any] = {}

    dropped: ClassVar[Mapping[str, str]] = {
        "ttlSecondsAfterFinished": CLEAN,
    }
    refused: ClassVar[Mapping[str, str]] = {
        "podFailurePolicy": "name exit codes in trainmaster.exitPolicy",
        "successPolicy": "a job succeeds when its primary has exited 0",
        "backoffLimitPerIndex": "budgets are counted for each replica",
        "maxFailedIndexes": "budgets are counted for each replica",
        "suspend": NOT_SUSPENDED,
    }


@dataclass(frozen=True, slots=True)
class Group:
    """A replicated job."""

    name: str
    path: str
    replicas: int
    batch: BatchJob
    batch_path: str
    subdomain: str = ""
    """Subdomain of its pods; empty: that of the JobSet."""

    @property
    def pods(self) -> int:
        return self.replicas * self.batch.parallelism


def convert_jobset(manifest: Manifest, findings: Findings) -> ManifestContent:
    """Return the content of a JobSet; without roles if its jobs cannot be one job."""
    fields = findings.read(manifest.spec, "spec", JobSetFields)
    groups = _groups(fields, findings)
    if groups is None:
        return ManifestContent(())
    return convert_groups(manifest, fields, groups, injected={}, container="", findings=findings)


def convert_groups(
    manifest: Manifest,
    fields: JobSetFields,
    groups: Sequence[Group],
    injected: Mapping[str, str],
    container: str,
    findings: Findings,
) -> ManifestContent:
    """Return the content of a manifest with these replicated jobs.

    The first one has the primary, the replica whose success is the job's. `injected`: variables
    that the controller of the manifest sets. `container`: name of the container that runs the
    program, where a pod has several.
    """
    network = findings.read(fields.network, "spec.network", Network)
    names = manifest.names(
        hosts=_host_names(manifest.name, network.subdomain or manifest.name, groups),
        primary=f"{groups[0].name}-0-0",
        pods=sum(group.pods for group in groups),
        injected=injected,
    )
    roles: list[Role] = []
    for index, group in enumerate(groups):
        own_names = _names_of(group, manifest.name, names, is_only=len(groups) == 1)
        pod = convert_pod(
            group.batch.template, f"{group.batch_path}.template", container, own_names, findings
        )
        if pod is None:
            continue
        count = _replicas(group, pod, findings)
        role = Role("worker", count, pod, pod.restart_policy or "OnFailure", group.path)
        is_first = index == 0
        roles += split_first(role) if is_first else [role]
    _check_success(fields, groups, findings)
    deadlines_s = [
        group.batch.active_deadline_seconds
        for group in groups
        if group.batch.active_deadline_seconds
    ]
    deadline_path = f"{groups[0].batch_path}.activeDeadlineSeconds"
    deadline = scheduling(min(deadlines_s, default=None), deadline_path, findings)
    return ManifestContent(roles, deadline, _restarts(fields, groups, roles, findings))


def _names_of(group: Group, jobset: str, names: Names, *, is_only: bool) -> Names:
    """Return the names in the pods of one replicated job, with their completion index.

    The index is that of a pod in one of the replicated job's jobs. It is known if all pods have the
    same one, or if it is the rank of the replica, because there is one such job. Otherwise the
    names have no index, and a manifest that refers to it is refused.
    """
    if group.batch.completion_mode != "Indexed":
        return names
    if group.pods == 1:
        return replace(names, index="0", host=f"{jobset}-{group.name}-0-0")
    if is_only and group.replicas == 1:
        return replace(names, index=RANK, host=f"{jobset}-{group.name}-0-{RANK}")
    if is_only and group.batch.parallelism == 1:
        return replace(names, index="0")
    return names


def _host_names(jobset: str, subdomain: str, groups: Sequence[Group]) -> re.Pattern[str]:
    """Return the pattern of host names: JOBSET-JOB-INDEX-INDEX, also with subdomain and domain."""
    jobs = "|".join(re.escape(group.name) for group in groups)
    own_subdomains = [group.subdomain for group in groups if group.subdomain]
    subdomains = "|".join(map(re.escape, [subdomain, *own_subdomains]))
    return re.compile(
        rf"\b{re.escape(jobset)}-(?P<id>(?:{jobs})-[0-9]+-[0-9]+)"
        rf"(?:\.(?:{subdomains})(?:\.[a-z0-9.-]*[a-z0-9])?)?"
    )


def _groups(fields: JobSetFields, findings: Findings) -> list[Group] | None:
    """Return the replicated jobs, that of the primary first; None if they cannot be one job."""
    path = "spec.replicatedJobs"
    groups = [
        read_group(job, f"{path}[{index}]", findings)
        for index, job in enumerate(fields.replicated_jobs)
    ]
    groups = [group for group in groups if group.pods]
    if len(groups) == 1:
        return groups
    drivers = [group for group in groups if group.pods == 1]
    if len(groups) == 2 and drivers:  # noqa: PLR2004 - a driver and its workers
        others = [group for group in groups if group is not drivers[0]]
        return [drivers[0], *others]
    problem = (
        f"has {len(groups)} replicated jobs; a job has one, or a driver of one pod and one of"
        " workers"
    )
    findings.refuse(path, problem, "one JobSet for each job")
    return None


def read_group(value: Mapping[str, Any], path: str, findings: Findings) -> Group:
    """Return the replicated job at `path`, and add its problems to `findings`."""
    job = findings.read(value, path, ReplicatedJob)
    template = findings.read(job.template, f"{path}.template", Template)
    batch_path = f"{path}.template.spec"
    batch = findings.read(template.spec, batch_path, BatchJob)
    if batch.completions not in (None, batch.parallelism):
        problem = (
            f"is {batch.completions}, and parallelism is {batch.parallelism}; all replicas run"
            " together"
        )
        findings.refuse(f"{batch_path}.completions", problem, str(batch.parallelism))
    subdomain = findings.read(job.network, f"{path}.network", Network).subdomain or ""
    return Group(job.name, path, job.replicas, batch, batch_path, subdomain)


def _replicas(group: Group, pod: Pod, findings: Findings) -> int:
    """Return the number of replicas: one for each pod, or for each TPU slice."""
    topology = pod.machine.get("tpuTopology")
    machine = TPU_VMS.get(str(pod.machine.get("machineType")))
    if topology is None or machine is None:
        return group.pods
    table = machine.generation_table
    size = table.size_of(str(topology))
    if size:
        hosts = table.hosts(size)
        hosts_on_gke = table.chips(size) // CHIPS_PER_HOST  # GKE splits 2x4 into two hosts
        if group.batch.parallelism not in (hosts, hosts_on_gke):
            problem = (
                f"is {group.batch.parallelism}, but a slice of the topology {topology} has {hosts}"
                " hosts"
            )
            findings.refuse(f"{group.batch_path}.parallelism", problem, str(hosts))
    return group.replicas


def _check_success(fields: JobSetFields, groups: Sequence[Group], findings: Findings) -> None:
    policy = findings.read(fields.success_policy, "spec.successPolicy", SuccessPolicy)
    primary = groups[0]
    targets = policy.target_replicated_jobs or [group.name for group in groups]
    if primary.name not in targets:
        problem = f"names {', '.join(targets)}; the job here succeeds when {primary.name} has"
        findings.refuse("spec.successPolicy.targetReplicatedJobs", problem, primary.name)
    elif targets != [primary.name] or primary.pods > 1:
        requested = f"{policy.operator} of {', '.join(targets)}"
        reason = "The job succeeds when its primary has exited 0, and not when all pods have."
        findings.substitute("spec.successPolicy", requested, "the primary", reason)


def _restarts(
    fields: JobSetFields, groups: Sequence[Group], roles: Sequence[Role], findings: Findings
) -> dict[str, object]:
    """Return the fields of `trainmaster` that have the effect of the failure policies."""
    policy = findings.read(fields.failure_policy, "spec.failurePolicy", FailurePolicy)
    restarts_pods = any(group.batch.backoff_limit for group in groups)
    if policy.max_restarts:
        path = "spec.failurePolicy.maxRestarts"
        reason = (
            "The restart of any replica reruns the whole job, at most three times; a rerun after a"
            " lost VM is free."
        )
        findings.substitute(
            path, str(policy.max_restarts), "restartJobOnWorkerRestart, 3 reruns", reason
        )
        return {"restartJobOnWorkerRestart": True, "exitPolicy": {"preset": "restart"}}
    if restarts_pods:
        # A failed pod with Never is replaced by its Job as long as backoffLimit allows.
        roles = [replace(role, restart_policy="OnFailure") for role in roles]
    elif all(role.restart_policy == "Never" for role in roles):
        return {"disableRetries": True}
    limit = min(group.batch.backoff_limit for group in groups)
    return restart_fields(roles, limit, f"{groups[0].batch_path}.backoffLimit", findings)
