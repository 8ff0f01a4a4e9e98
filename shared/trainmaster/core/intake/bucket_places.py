"""Where Cloud Storage keeps the objects of a bucket, and whether VMs of a region read them within
that region.

Source: "Bucket locations" of Cloud Storage.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_DUAL_REGIONS: Final = {
    "NAM4": ("us-central1", "us-east1"),
    "EUR4": ("europe-north1", "europe-west4"),
    "EUR5": ("europe-west1", "europe-west2"),
    "EUR7": ("europe-west2", "europe-west3"),
    "EUR8": ("europe-west3", "europe-west6"),
    "ASIA1": ("asia-northeast1", "asia-northeast2"),
}
_MULTI_REGIONS: Final = {"US": "us-", "EU": "europe-", "ASIA": "asia-"}
_NOT_IN_EU: Final = ("europe-west2", "europe-west6")
"""London and Zurich, which the multi-region EU does not use."""


@dataclass(frozen=True, slots=True)
class BucketPlace:
    """The location of a bucket."""

    location: str
    """Cloud Storage's name, such as `US-CENTRAL1`, `NAM4` or `EU`."""
    data_locations: tuple[str, ...] = ()
    """The two regions of a configurable dual-region, such as `US-EAST1`; empty for any other
    bucket.
    """

    @property
    def regions(self) -> tuple[str, ...]:
        """Its one or two regions; empty for a multi-region."""
        location = self.location.upper()
        if self.data_locations:
            return tuple(part.lower() for part in self.data_locations)
        return (
            () if location in _MULTI_REGIONS else _DUAL_REGIONS.get(location, (location.lower(),))
        )

    def serves(self, region: str) -> bool:
        """Whether the bucket has its objects in this region, or may have them there (a
        multi-region).
        """
        if self.regions:
            return region in self.regions
        location = self.location.upper()
        return region.startswith(_MULTI_REGIONS[location]) and not (
            location == "EU" and region in _NOT_IN_EU
        )
