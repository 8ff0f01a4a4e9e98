"""From roles to a job file, for all kinds of manifest: worker pools, restarts and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from trainmaster.jobspec.manifests.findings import Findings
from trainmaster.jobspec.manifests.pods import Pod

TaskType = Literal["chief", "worker", "ps", "evaluator"]
POOLS: Final[tuple[TaskType, ...]] = ("chief", "worker", "ps", "evaluator")
RETRYABLE_FROM: Final = 128
"""ExitCode restarts these exit codes. Source: training-operator, `IsRetryableExitCode`."""
CODE_MAX: Final = 255
_BUDGETS: Final = "5 restarts per replica and attempt, then 3 reruns of the job"


@dataclass(frozen=True, slots=True)
class Role:
    """A role of the job, with the pods that a manifest describes for it."""

    task_type: TaskType
    count: int
    pod: Pod
    restart_policy: str
    """Always, OnFailure, Never or ExitCode."""
    path: str
    """Path of the role in the manifest."""


def split_first(role: Role) -> list[Role]:
    """Return a role of n pods as a chief and n - 1 workers: the first pool has one replica."""
    chief = replace(role, task_type="chief", count=1)
    return [chief, replace(role, count=role.count - 1)] if role.count > 1 else [chief]


def worker_pools(roles: Sequence[Role], findings: Findings) -> list[dict[str, Any]]:
    """Return `workerPoolSpecs`, and record which fields of the manifest they come from.

    A pool without a role is `{}`.
    """
    by_type = {role.task_type: role for role in roles}
    last = max((POOLS.index(task_type) for task_type in by_type), default=-1)
    return [
        _pool(index, by_type[task_type], findings) if task_type in by_type else {}
        for index, task_type in enumerate(POOLS[: last + 1])
    ]


def _pool(index: int, role: Role, findings: Findings) -> dict[str, Any]:
    path = f"jobSpec.workerPoolSpecs[{index}]"
    pod = role.pod
    findings.origins |= {
        path: role.path,
        f"{path}.replicaCount": f"{role.path}.replicas",
        f"{path}.machineSpec": pod.path,
        f"{path}.diskSpec": f"{pod.container_path}.resources",
        f"{path}.containerSpec": pod.container_path,
        f"{path}.containerSpec.imageUri": f"{pod.container_path}.image",
    }
    pool = {
        "machineSpec": dict(pod.machine),
        "replicaCount": role.count,
        "containerSpec": dict(pod.container),
    }
    if pod.disk:
        pool["diskSpec"] = dict(pod.disk)
    return pool


def placement(roles: Sequence[Role], findings: Findings) -> dict[str, Any]:
    """Return the fields of `trainmaster` that the node selectors lead to."""
    fields: dict[str, Any] = {}
    for name, label in (
        ("region", "region"),
        ("zone", "zone"),
        ("reservation", "reservation-name"),
    ):
        values = {getattr(role.pod, name) for role in roles} - {None, ""}
        if len(values) > 1:
            path = f"{roles[0].pod.path}.nodeSelector"
            problem = f"selects the {label} {' and '.join(sorted(values))}; a job has one"
            findings.refuse(path, problem, "one value")
        elif values:
            fields[name] = values.pop()
    zone = fields.pop("zone", None)
    if zone is not None:
        fields["zones"] = [zone]
        fields.setdefault("region", zone.rpartition("-")[0])
    on_spot = {role.task_type for role in roles if role.pod.spot}
    if on_spot == {role.task_type for role in roles}:
        fields["spot"] = "all"
    elif on_spot == {"worker"}:
        fields["spot"] = "workers"
    elif on_spot:
        path = f"{roles[0].pod.path}.nodeSelector"
        problem = f"selects Spot VMs for {', '.join(sorted(on_spot))} only"
        findings.refuse(path, problem, "all roles, or Worker only")
    return fields


def restart_fields(
    roles: Sequence[Role], backoff_limit: int | None, backoff_path: str, findings: Findings
) -> dict[str, Any]:
    """Return the fields of `trainmaster` that have the effect of the restart policies."""
    policies = {role.restart_policy for role in roles}
    if policies == {"Never"}:
        return {"disableRetries": True}
    if backoff_limit == 0:
        reason = (
            "The first failure of any replica ends the job; a lost VM is replaced nevertheless."
        )
        findings.substitute(backoff_path, "0", "trainmaster.disableRetries", reason)
        return {"disableRetries": True}
    policy: dict[str, Any] = {"preset": "restart"}
    for role in roles:
        prefix = "" if len(policies) == 1 else f"{role.task_type}:"
        _add_codes(policy, prefix, role.restart_policy)
        if role.restart_policy == "Always":
            reason = "A replica that exits 0 is complete here, and is not restarted."
            findings.substitute(f"{role.path}.restartPolicy", "Always", "OnFailure", reason)
    requested = "unlimited restarts"
    if backoff_limit is not None:
        requested = f"{backoff_limit} restarts in all"
    reason = "The budgets of restarts are fixed; restarts after lost VMs are free."
    findings.substitute(backoff_path, requested, _BUDGETS, reason)
    return {"exitPolicy": policy}


def _add_codes(policy: dict[str, Any], prefix: str, restart_policy: str) -> None:
    """Add the exit codes of one role, in place.

    For OnFailure and Always, the preset restarts after every failure.
    """
    codes = {
        "Never": {"fail": f"1-{CODE_MAX}"},
        "ExitCode": {"fail": f"1-{RETRYABLE_FROM - 1}", "restart": f"{RETRYABLE_FROM}-{CODE_MAX}"},
    }
    for action, code_range in codes.get(restart_policy, {}).items():
        items: list[str] = policy.setdefault(action, [])
        if f"{prefix}{code_range}" not in items:
            items.append(f"{prefix}{code_range}")


def scheduling(deadline_s: int | None, path: str, findings: Findings) -> dict[str, Any]:
    """Return `jobSpec.scheduling` of a deadline."""
    if deadline_s is None:
        return {}
    findings.origins["jobSpec.scheduling.timeout"] = path
    reason = "The time is counted from RUNNING on, and the job then ends as CANCELLED."
    findings.substitute(path, str(deadline_s), f"scheduling.timeout: {deadline_s}s", reason)
    return {"timeout": f"{deadline_s}s"}


def service_account(
    roles: Sequence[Role], annotations: Mapping[str, str], findings: Findings
) -> str | None:
    """Return the e-mail address of the VMs' service account; None: the installation's default."""
    email = annotations.get("iam.gke.io/gcp-service-account")
    for role in roles:
        name = role.pod.service_account
        if name not in (None, "default") and email is None:
            problem = f"is {name}, a service account of Kubernetes; name that of Google Cloud"
            example = (
                "metadata: {annotations: {iam.gke.io/gcp-service-account:"
                " NAME@PROJECT.iam.gserviceaccount.com}}"
            )
            findings.refuse(f"{role.pod.path}.serviceAccountName", problem, example)
            break
    if email:
        findings.origins["jobSpec.serviceAccount"] = (
            "metadata.annotations[iam.gke.io/gcp-service-account]"
        )
    return email
