"""`spec.runPolicy` of the training operator's kinds. Source: its common_types.go.

Each `Level` lists the fields of one mapping: those that are converted; those that have no effect
here (`dropped`, with the reason); and those that no job can have (`refused`, with what to do).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from trainmaster.jobspec.manifests.findings import Count, Findings, Level

# Texts of fields that several kinds of manifests have: why one has no effect, what to do instead.
CLEAN: Final = "VMs are always deleted when a job has ended; its logs and its record stay."

NOT_SUSPENDED: Final = "a job cannot be created suspended; submit it when it may run"


class RunPolicy(Level):
    active_deadline_seconds: Count | None = None
    backoff_limit: Count | None = None
    scheduling_policy: Mapping[str, Any] | None = None

    dropped: ClassVar[Mapping[str, str]] = {
        "cleanPodPolicy": CLEAN,
        "ttlSecondsAfterFinished": CLEAN,
        "managedBy": "Trainmaster manages its jobs itself.",
    }
    refused: ClassVar[Mapping[str, str]] = {"suspend": NOT_SUSPENDED}


UNDER_SPEC: Final = dict.fromkeys(
    (*RunPolicy.dropped, "activeDeadlineSeconds", "backoffLimit", "schedulingPolicy"), "runPolicy"
)
"""Fields that stood directly under `spec`.

Source: the v1 types of tf-operator 0.7 to 1.1, pytorch-operator 0.5 to 0.7, xgboost-operator 0.1
and mpi-operator 0.2.
"""


class SchedulingPolicy(Level):
    min_available: int | None = None
    schedule_timeout_seconds: Count | None = None

    dropped: ClassVar[Mapping[str, str]] = {
        "queue": "All jobs are in one admission queue.",
        "priorityClass": "Converted jobs have the priority 0 in the admission queue.",
        "minResources": "All VMs of a job are requested together.",
    }


def check_run_policy(policy: RunPolicy, pods: int, findings: Findings) -> dict[str, str]:
    """Return the fields of `jobSpec.scheduling` that the scheduling policy leads to.

    `pods`: number of the job's pods.
    """
    if policy.scheduling_policy is None:
        return {}
    path = "spec.runPolicy.schedulingPolicy"
    gang = findings.read(policy.scheduling_policy, path, SchedulingPolicy)
    if gang.min_available is not None and gang.min_available != pods:
        problem = (
            f"is {gang.min_available}, but the job has {pods} pods; a job starts when all its VMs"
            " exist"
        )
        findings.refuse(f"{path}.minAvailable", problem, str(pods))
    timeout_s = gang.schedule_timeout_seconds
    if timeout_s is None:
        return {}
    findings.origins["jobSpec.scheduling.maxWaitDuration"] = f"{path}.scheduleTimeoutSeconds"
    reason = "The time is counted until RUNNING, and the job then ends as CANCELLED."
    findings.substitute(
        f"{path}.scheduleTimeoutSeconds", str(timeout_s), f"maxWaitDuration: {timeout_s}s", reason
    )
    return {"maxWaitDuration": f"{timeout_s}s"}
