"""Settings that all VMs and TPU nodes of an installation share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainmaster.core.model.plan import Plan


@dataclass(frozen=True, slots=True)
class VmDefaults:
    """Used for every VM, unless the job's plan says otherwise."""

    project: str
    service_account: str = ""
    """E-mail. Empty: VMs have no account, and Cloud TPU chooses its own."""
    network: str = "global/networks/default"
    """Partial or full URL."""
    subnetwork: str = ""
    """Partial or full URL, in which `{region}` stands for the job's region.

    Empty: the network's own subnetwork.
    """
    account_networks: Mapping[str, str] = field(default_factory=dict)
    """Name of the network that only VMs of a service account use, by the e-mail address of the
    account.
    """
    images: Mapping[str, str] = field(default_factory=dict)
    """Images of the installation in place of Google's: from the image's family to the image."""

    def network_of(self, plan: Plan) -> tuple[str, str]:
        """Return network and subnetwork of a job's VMs.

        An empty subnetwork means the network's own in that region.
        """
        if plan.access.network:
            return plan.access.network, self._subnetwork_of(plan.access.network, plan.where.region)
        own = self.account_networks.get(plan.access.service_account or "")
        if own:
            network = f"projects/{self.project}/global/networks/{own}"
            return network, self._account_subnetwork(own, plan.where.region)
        return self.network, self.subnetwork.replace("{region}", plan.where.region)

    def _subnetwork_of(self, network: str, region: str) -> str:
        """Return the subnetwork of a network that the job names, `projects/P/…/networks/NAME`;
        empty for one that is not the installation's.

        Custom-mode networks, such as those of infra/, need one. A project may be named by its
        number, which is not known here. Then only the network's name is compared: Compute Engine
        refuses a subnetwork of another network.
        """
        project = network.split("/")[1]
        name = network.rpartition("/")[2]
        has_number = project.isdecimal()
        shared_project = self.project
        if self.network.startswith("projects/"):
            shared_project = self.network.split("/")[1]
        shared_name = self.network.rpartition("/")[2]
        is_in_shared_project = has_number or project == shared_project
        if name == shared_name and is_in_shared_project:
            return self.subnetwork.replace("{region}", region)
        is_in_own_project = has_number or project == self.project
        if name in self.account_networks.values() and is_in_own_project:
            return self._account_subnetwork(name, region)
        return ""

    def _account_subnetwork(self, network: str, region: str) -> str:
        return f"projects/{self.project}/regions/{region}/subnetworks/{network}-{region}"
