"""List prices of what the control plane uses. VMs are not part of it.

Sources: "Firestore pricing", Standard edition, multi-region; "Cloud Run functions pricing", tier 1. The prices are of
November 2026, from copies of these pages. A database in one region of the United States costs about half. Free tiers
are left out.
"""

from __future__ import annotations

from typing import Final

READ: Final = 0.06 / 100_000
WRITE: Final = 0.18 / 100_000
DELETE: Final = 0.02 / 100_000
INVOCATION: Final = 0.40 / 1_000_000
VCPU_S: Final = 0.000024
GIB_S: Final = 0.0000025
BILLED_S: Final = 0.1
"""Assumed time of one invocation: the smallest that is charged. Invocations that share an instance cost less, and
deliveries of `provision` that wait for VMs cost more."""
MEMORY_GIB: Final = 0.5
"""As infra/functions.tf sets for most functions."""
COMPUTE: Final = BILLED_S * (VCPU_S + MEMORY_GIB * GIB_S)


def dollars(reads: float, writes: float, deletes: float, invocations: float) -> float:
    return reads * READ + writes * WRITE + deletes * DELETE + invocations * (INVOCATION + COMPUTE)
