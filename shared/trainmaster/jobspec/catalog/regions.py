"""Regions in which a job can run, and their zones in the order in which they are tried by default.

This is a table, not a request to Compute Engine, because the functions that accept jobs have no
permission there, and because a spec must mean the same whenever it is read. Source: Compute Engine
"Regions and zones" (November 2026). It includes all regions of AI Platform Training (the lists in
its client and in its notebooks extension).
"""

from __future__ import annotations

from typing import Final

_ZONE_LETTERS: Final = {
    "africa-south1": "abc",
    "asia-east1": "abc",
    "asia-east2": "abc",
    "asia-northeast1": "abc",
    "asia-northeast2": "abc",
    "asia-northeast3": "abc",
    "asia-south1": "abc",
    "asia-south2": "abc",
    "asia-southeast1": "abc",
    "asia-southeast2": "abc",
    "australia-southeast1": "abc",
    "australia-southeast2": "abc",
    "europe-central2": "abc",
    "europe-north1": "abc",
    "europe-north2": "abc",
    "europe-southwest1": "abc",
    "europe-west1": "bcd",
    "europe-west10": "abc",
    "europe-west12": "abc",
    "europe-west2": "abc",
    "europe-west3": "abc",
    "europe-west4": "abc",
    "europe-west6": "abc",
    "europe-west8": "abc",
    "europe-west9": "abc",
    "me-central1": "abc",
    "me-central2": "abc",
    "me-west1": "abc",
    "northamerica-northeast1": "abc",
    "northamerica-northeast2": "abc",
    "northamerica-south1": "abc",
    "southamerica-east1": "abc",
    "southamerica-west1": "abc",
    "us-central1": "abcf",
    "us-central2": "b",
    "us-east1": "bcd",
    "us-east4": "abc",
    "us-east5": "abc",
    "us-south1": "abc",
    "us-west1": "abc",
    "us-west2": "abc",
    "us-west3": "abc",
    "us-west4": "abc",
}
"""Region → the letters of its zones."""


def _zones(region: str, letters: str) -> tuple[str, ...]:
    """Return the full names of the zones with these letters."""
    return tuple(f"{region}-{letter}" for letter in letters)


REGION_ZONES: Final = {region: _zones(region, letters) for region, letters in _ZONE_LETTERS.items()}
"""Region → its zones."""

TPU_ONLY_REGIONS: Final = ("us-central2",)
"""Regions without other machines.

Source: Cloud TPU "TPU regions and zones"; Compute Engine's list does not have it.
"""
