"""Settings that all VMs and TPU nodes of an installation share, and what both fleets know of an error."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.core.model.plan import Plan


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
    account_networks: Mapping[str, str] = field(default_factory=dict)
    """From service accounts of jobs to the names of networks that only their VMs use."""
    images: Mapping[str, str] = field(default_factory=dict)
    """Images of the installation in place of Google's: from the image's family to the image."""

    def network_of(self, plan: Plan) -> tuple[str, str]:
        """Return network and subnetwork of a job's VMs. An empty subnetwork means the network's own in that region."""
        if plan.network:
            return plan.network, ""
        if own := self.account_networks.get(plan.service_account or ""):
            project = f"projects/{self.project}"
            return (
                f"{project}/global/networks/{own}",
                f"{project}/regions/{plan.region}/subnetworks/{own}-{plan.region}",
            )
        return self.network, self.subnetwork.replace("{region}", plan.region)


@dataclass(frozen=True, slots=True)
class Problem:
    """An error of a call or of a long-running operation, in Google's words."""

    code: str
    message: str
    zones_available: tuple[str, ...] = ()
    """Zones that the error suggests, if any."""
