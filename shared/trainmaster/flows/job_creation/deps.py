"""Dependencies of the flows that create jobs, in addition to those of every flow."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trainmaster.core.intake.named_resources import AllowedResources
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.flows.commit.record import Deps
from trainmaster.ports import Objects, Resources


@dataclass(frozen=True, slots=True)
class CreationDeps(Deps):
    """The ports and settings of job creation."""

    allowed: AllowedResources = field(default_factory=AllowedResources)
    """Resources that every job may name."""
    objects: Callable[[], Objects] | None = None
    """Builds the port that looks up packages when a job is accepted; None: no look-up, as for
    trials.
    """
    resources: Callable[[], Resources] | None = None
    """Builds the port that looks up a job's account, images and secrets; None: no look-up."""
    algorithms: str = ""
    """Address of the package of the built-in algorithms; empty: there is none."""
    gcsfuse: str = ""
    """Address of gcsfuse; empty: there is none."""
    gcs_in_containers: bool = True
    """Whether containers find what is mounted below /gcs. Those of the local stack do not."""
    messages_per_minute: int = 0
    """Most jobs created by messages and uploads within a minute; 0: no limit."""
    regions: tuple[str, ...] = ()
    """Regions in which the installation's network has a subnetwork; empty: not known."""
    prices: Callable[[], PriceList | Unknown] = lambda: Unknown("prices are not known here")
    """Reads the price list."""
