"""Names and labels of VMs and TPU nodes, as functions of the job id and the replica id.

    VM name   tm-SLUG-HASH-TASK_TYPE-INDEX      tm-digits-1-3f2a1c5b7d9e8046-worker-0
              The part before TASK_TYPE is the same for all VMs of a job, so the names of a role
              differ only in INDEX.
    label     the job id, or SLUG-HASH where the job id is not a legal label value

A replaced VM gets the name of the VM before it, so that its DNS name stays the same.
"""

from __future__ import annotations

import hashlib
import re
from functools import lru_cache
from typing import Final

from trainmaster.core.model.installation import name_in_installation
from trainmaster.core.model.replica_id import ReplicaId, TaskType

NAME_LENGTH_MAX: Final = 63
"""Longest instance name and label value.

Source: Compute API, `[a-z]([-a-z0-9]*[a-z0-9])?`, 1-63.
"""
HASH_DIGITS: Final = 16
"""Hexadecimal digits of the job id's hash.

With 64 bits, it is not feasible to find a second job id whose VMs have the same names.
"""
_REST_LENGTH: Final = len("--") + HASH_DIGITS + len("-evaluator-99999")
"""Longest part of a name after the prefix and the slug."""

VM_NAME: Final = re.compile(
    rf"tm[a-z0-9]*-[a-z0-9-]+-(?P<hash>[0-9a-f]{{{HASH_DIGITS}}})"
    rf"-(?:{'|'.join(TaskType)})-(?:0|[1-9][0-9]*)"
)
"""Names of the VMs of all installations."""


def slug(text: str, length: int) -> str:
    """Return `text` in lower case, with hyphens for all other characters, cut to `length`."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:length].rstrip("-")


def vm_name(job_id: str, replica_id: ReplicaId) -> str:
    """Return the name of the replica's VM. It depends on nothing else, so all VMs of a replica have
    the same name.
    """
    return vm_name_with_prefix(name_in_installation("tm"), job_id, replica_id)


@lru_cache(maxsize=4096)  # called for every replica in every cycle of a reconciliation
def vm_name_with_prefix(prefix: str, job_id: str, replica_id: ReplicaId) -> str:
    """Return `vm_name` in the installation whose VM names begin with `prefix`."""
    job_slug = slug(job_id, NAME_LENGTH_MAX - len(prefix) - _REST_LENGTH)
    return f"{prefix}-{job_slug}-{job_hash(job_id)}-{replica_id}"


def job_hash(job_id: str) -> str:
    """Return the hexadecimal digits that the names of all VMs of a job contain."""
    return hashlib.sha256(job_id.encode()).hexdigest()[:HASH_DIGITS]


def job_hash_in(vm_name: str) -> str | None:
    """Return the `job_hash` in a VM's name; None if the name was not made by `vm_name`."""
    match = VM_NAME.fullmatch(vm_name)
    return match["hash"] if match and vm_name.startswith(name_in_installation("tm-")) else None


def replica_id_from_vm_name(vm_name: str) -> ReplicaId:
    """Return the replica whose VM has this name.

    Raises ValueError for a name that `vm_name` does not make.
    """
    if not vm_name.startswith(name_in_installation("tm-")):
        raise ValueError(f"{vm_name} is the name of a VM of another installation")
    task_type, index = vm_name.rsplit("-", 2)[1:]
    return ReplicaId.parse(f"{task_type}-{index}")


def is_vm_of(name: str, job_id: str) -> bool:
    """Return whether any replica of this job, or of a later holder of its machines, has this VM."""
    try:
        return vm_name(job_id, replica_id_from_vm_name(name)) == name
    except ValueError:
        return False


def job_label(job_id: str) -> str:
    """Return the job id if it is a legal label value, else a slug with a hash that
    keeps it unique.
    """
    if re.fullmatch(r"[a-z][a-z0-9_-]{0,62}", job_id):
        return job_id
    return f"{slug(job_id, NAME_LENGTH_MAX - HASH_DIGITS - 1)}-{job_hash(job_id)}"
