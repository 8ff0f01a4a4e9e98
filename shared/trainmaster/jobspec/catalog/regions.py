"""Regions in which a job can run, and their zones in the order in which they are tried by default.

This is a table, not a request to Compute Engine, because the functions that accept jobs have no permission there, and
because a spec must mean the same whenever it is read. Source: Compute Engine "Regions and zones" (November 2026). It
includes all training regions of the old service (the lists in its client and in its notebooks extension).
"""

from __future__ import annotations

from typing import Final

_ABC: Final = ("a", "b", "c")
_BCD: Final = ("b", "c", "d")

_ZONE_LETTERS: Final = {
    "africa-south1": _ABC,
    "asia-east1": _ABC,
    "asia-east2": _ABC,
    "asia-northeast1": _ABC,
    "asia-northeast2": _ABC,
    "asia-northeast3": _ABC,
    "asia-south1": _ABC,
    "asia-south2": _ABC,
    "asia-southeast1": _ABC,
    "asia-southeast2": _ABC,
    "australia-southeast1": _ABC,
    "australia-southeast2": _ABC,
    "europe-central2": _ABC,
    "europe-north1": _ABC,
    "europe-north2": _ABC,
    "europe-southwest1": _ABC,
    "europe-west1": _BCD,
    "europe-west2": _ABC,
    "europe-west3": _ABC,
    "europe-west4": _ABC,
    "europe-west6": _ABC,
    "europe-west8": _ABC,
    "europe-west9": _ABC,
    "europe-west10": _ABC,
    "europe-west12": _ABC,
    "me-central1": _ABC,
    "me-central2": _ABC,
    "me-west1": _ABC,
    "northamerica-northeast1": _ABC,
    "northamerica-northeast2": _ABC,
    "northamerica-south1": _ABC,
    "southamerica-east1": _ABC,
    "southamerica-west1": _ABC,
    "us-central1": ("a", "b", "c", "f"),
    "us-central2": ("b",),
    "us-east1": _BCD,
    "us-east4": _ABC,
    "us-east5": _ABC,
    "us-south1": _ABC,
    "us-west1": _ABC,
    "us-west2": _ABC,
    "us-west3": _ABC,
    "us-west4": _ABC,
}

REGION_ZONES: Final = {
    region: tuple(f"{region}-{letter}" for letter in letters) for region, letters in _ZONE_LETTERS.items()
}

TPU_ONLY_REGIONS: Final = ("us-central2",)
"""Regions without other machines. Source: Cloud TPU "TPU regions and zones"; Compute Engine's list does not have it."""
