"""Regions in which a job can run, and their zones in the order in which they are tried by default.

This is a table, not a request to Compute Engine, because the functions that accept jobs have no
permission there, and because a spec must mean the same whenever it is read. Source: Compute Engine
"Regions and zones" (November 2026). It includes all training regions of the old service (the lists
in its client and in its notebooks extension).
"""

from __future__ import annotations

from typing import Final

_ABC: Final = (
    *("africa-south1", "me-central1", "me-central2", "me-west1"),
    *("asia-east1", "asia-east2", "asia-northeast1", "asia-northeast2", "asia-northeast3"),
    *("asia-south1", "asia-south2", "asia-southeast1", "asia-southeast2"),
    *("australia-southeast1", "australia-southeast2"),
    *(
        "europe-central2",
        "europe-north1",
        "europe-north2",
        "europe-southwest1",
        "europe-west2",
        "europe-west3",
    ),
    *(
        "europe-west4",
        "europe-west6",
        "europe-west8",
        "europe-west9",
        "europe-west10",
        "europe-west12",
    ),
    *("northamerica-northeast1", "northamerica-northeast2", "northamerica-south1"),
    *("southamerica-east1", "southamerica-west1"),
    *("us-east4", "us-east5", "us-south1", "us-west1", "us-west2", "us-west3", "us-west4"),
)
"""Regions with the zones a, b and c."""
_OTHERS: Final = {
    "europe-west1": "bcd",
    "us-central1": "abcf",
    "us-central2": "b",
    "us-east1": "bcd",
}

REGION_ZONES: Final = {
    region: tuple(f"{region}-{letter}" for letter in letters)
    for region, letters in sorted((dict.fromkeys(_ABC, "abc") | _OTHERS).items())
}

TPU_ONLY_REGIONS: Final = ("us-central2",)
"""Regions without other machines.

Source: Cloud TPU "TPU regions and zones"; Compute Engine's list does not have it.
"""
