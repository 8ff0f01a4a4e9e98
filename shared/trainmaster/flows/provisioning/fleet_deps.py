"""Dependencies of the flow `provision` alone, in addition to those of every flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from trainmaster.flows.provisioning.orphans import OrphanTimes
from trainmaster.ports import AddressBook, Fleet
from trainmaster.ports.metrics import MetricReader


@dataclass(frozen=True, slots=True)
class FleetDeps:
    """The ports and settings of the fleet."""

    fleet: Fleet
    addresses: AddressBook
    project: str
    agent_files: dict[str, str]
    """Metadata entries that are the same for every VM: the address of the agent, and its scripts.
    """
    run_all: Callable[[Sequence[Callable[[], None]]], None]
    """Makes independent calls, several at once.

    It runs all of them to their end, and then raises the first error.
    """
    orphan_times: OrphanTimes = field(default_factory=OrphanTimes)
    metrics: MetricReader | None = None
    """None: agents write no metrics."""
