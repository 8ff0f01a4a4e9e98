"""An error that Compute Engine or Cloud TPU returns.

The two fleets, the adapters that create VMs and TPU nodes, read it from the answer to a call, or
from a long-running operation, and classify it (`compute_fleet.errors`, `tpu_fleet.errors`).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Problem:
    """An error of a call or of a long-running operation, in Google's words."""

    code: str
    message: str
    zones_available: tuple[str, ...] = ()
    """Zones that the error suggests, if any."""
