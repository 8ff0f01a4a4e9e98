"""Settings that all VMs and TPU nodes of an installation share, and what both fleets know of an error."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VmDefaults:
    """Used for every VM, unless the job's plan says otherwise."""

    project: str
    service_account: str
    """E-mail. Empty: VMs have no account, and Cloud TPU chooses its own."""
    network: str
    """Partial or full URL."""
    subnetwork: str
    """Partial or full URL, in which `{region}` stands for the job's region. Empty: the network's own subnetwork."""


@dataclass(frozen=True, slots=True)
class Problem:
    """An error of a call or of a long-running operation, in Google's words."""

    code: str
    message: str
    zones_available: tuple[str, ...] = ()
    """Zones that the error suggests, if any."""
