"""From a pod's resources and node selector to the machine of a worker pool.

GKE's labels name the accelerator; Compute Engine sells machine types. The smallest machine type
with the GPUs, vCPUs and memory is selected, unless `node.kubernetes.io/instance-type` names one.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import Final

from trainmaster.core.machines.tpus import GENERATIONS
from trainmaster.jobspec.catalog.machine_types import (
    GPU_NAMES,
)

GIB: Final = 1 << 30

GPU_LABELS: Final = {name: accelerator for accelerator, name in GPU_NAMES.items()}
"""Value of `cloud.google.com/gke-accelerator` → the API's accelerator type.

GKE uses Compute Engine's names.
"""
TPU_FAMILIES: Final = {
    table.gke_label: table.machine_family for table in GENERATIONS.values() if table.gke_label
}
"""Value of `cloud.google.com/gke-tpu-accelerator` → machine family."""

_QUANTITY: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)(?:([eE][0-9]{1,2})|([A-Za-z]{0,2}))")
_BYTES: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kmgtp])i?b?(?:yte)?s?", re.IGNORECASE)
"""Bytes as people write them."""
_SUFFIXES: Final = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
}


def parse_quantity(value: object) -> Decimal | None:
    """Return the number of a quantity, such as `500m`, `4` or `16Gi`; None: it is not a quantity.

    Source: Kubernetes' API conventions, "Quantities".
    """
    match = _QUANTITY.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool):
        return None
    number, exponent, suffix = match.groups()
    if exponent:
        return Decimal(f"{number}{exponent}")
    return Decimal(number) * _SUFFIXES[suffix] if suffix in _SUFFIXES else None


def nearest_quantity(value: object) -> str | None:
    """Return the quantity that was probably meant: `16gb` is 16Gi; None: it is not known."""
    match = _BYTES.fullmatch(str(value).strip())
    return None if match is None else f"{match[1]}{match[2].upper()}i"
