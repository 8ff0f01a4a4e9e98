"""The fixed resources: regions, zones, machine types, accelerators, images; and the URLs of all
resources.

This is a selection: the regions of the examples, and the machine families that a training job may
use, with the figures of the product's own table (`trainmaster.core.machines`), which tests compare
with recorded answers of Compute Engine. Capacity and prices are not modelled. Source of the sizes:
https://cloud.google.com/compute/docs/machine-resource.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from trainmaster.core.machines.gpus import GPUS
from trainmaster.core.machines.machine_types import (
    MACHINE_TYPES,
    MachineType,
    family_of,
    find_machine_type,
)
from trainmaster_emulators.machines.compute_errors import Json, invalid, not_found

REGIONS: Final[Mapping[str, str]] = {
    "us-central1": "abcf",
    "us-east1": "bcd",
    "us-west1": "abc",
    "europe-west1": "bcd",
    "europe-west4": "abc",
    "asia-east1": "abc",
    "asia-southeast1": "abc",
}
"""Region → the last letters of its zones."""

_SIZES: Final[Mapping[str, tuple[int, ...]]] = {
    "n2-standard": (2, 4, 8, 16, 32, 48, 64, 80, 96, 128),
    "n2-highmem": (2, 4, 8, 16, 32, 48, 64, 80, 96, 128),
    "n2-highcpu": (2, 4, 8, 16, 32, 48, 64, 80, 96),
    "e2-standard": (2, 4, 8, 16, 32),
    "e2-highmem": (2, 4, 8, 16),
    "e2-highcpu": (2, 4, 8, 16, 32),
    "n2d-standard": (2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 224),
    "n2d-highmem": (2, 4, 8, 16, 32, 48, 64, 80, 96),
    "n4-standard": (2, 4, 8, 16, 32, 48, 64, 80),
    "n4-highmem": (2, 4, 8, 16, 32, 48, 64, 80),
    "n4-highcpu": (2, 4, 8, 16, 32, 48, 64, 80),
    "c2-standard": (4, 8, 16, 30, 60),
    "c2d-standard": (2, 4, 8, 16, 32, 56, 112),
    "c3-standard": (4, 8, 22, 44, 88, 176),
    "c3-highmem": (4, 8, 22, 44, 88, 176),
    "c3-highcpu": (4, 8, 22, 44, 88, 176),
    "c3d-standard": (4, 8, 16, 30, 60, 90, 180, 360),
    "c4-standard": (2, 4, 8, 16, 24, 32, 48, 96, 144, 192, 288),
    "c4-highmem": (2, 4, 8, 16, 24, 32, 48, 96, 144, 192, 288),
    "c4-highcpu": (2, 4, 8, 16, 24, 32, 48, 96, 144, 192, 288),
    "c4d-standard": (2, 4, 8, 16, 32, 48, 64, 96, 192, 384),
    "c4d-highcpu": (2, 4, 8, 16, 32, 48, 64, 96, 192, 384),
    "m3-ultramem": (32, 64, 128),
    "t2d-standard": (1, 2, 4, 8, 16, 32, 48, 60),
}
"""Family → available vCPU counts, for families whose sizes the product leaves to Compute Engine."""
ACCELERATOR_TYPES: Final = tuple(GPUS)
_CUSTOM: Final = "-custom-"


def stable_id(text: str) -> int:
    """Return a 63-bit id for a fixed resource, the same in every run."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def basename(reference: str) -> str:
    """Return the last segment of a name, a partial or a full URL: Compute accepts all three as a
    reference.
    """
    return reference.rstrip("/").rpartition("/")[2]


@dataclass(frozen=True, slots=True)
class Links:
    """The URLs of one project's resources. `root` ends in `/compute/v1`."""

    root: str
    project: str

    def __call__(self, *parts: str) -> str:
        return "/".join((self.root, "projects", self.project, *parts))

    def path(self, *parts: str) -> str:
        """Return the path of a resource without the server, as error messages contain it."""
        return "/".join(("projects", self.project, *parts))


@dataclass(frozen=True, slots=True)
class Catalog:
    """The fixed resources of a project.

    `images` maps an image or family name to a Python environment. The key `default` is for all
    other names.
    """

    links: Links
    images: Mapping[str, str] = field(default_factory=dict)

    def regions(self) -> list[Json]:
        return [self.region(name) for name in REGIONS]

    def region(self, name: str) -> Json:
        if name not in REGIONS:
            raise not_found(self.links.path("regions", name))
        zones = [self.links("zones", f"{name}-{letter}") for letter in REGIONS[name]]
        return self._constant("compute#region", name, "regions") | {
            "status": "UP",
            "zones": zones,
            "quotas": [],
        }

    def zones(self) -> list[Json]:
        return [self.zone(name) for name in self.zone_names()]

    def zone_names(self) -> Iterator[str]:
        for region, letters in REGIONS.items():
            for letter in letters:
                yield f"{region}-{letter}"

    def zone(self, name: str) -> Json:
        region, _, letter = name.rpartition("-")
        if len(letter) != 1 or letter not in REGIONS.get(region, ""):
            raise not_found(self.links.path("zones", name))
        return self._constant("compute#zone", name, "zones") | {
            "status": "UP",
            "region": self.links("regions", region),
        }

    def machine_types(self, zone: str) -> list[Json]:
        self.zone(zone)
        sized = [f"{family}-{vcpus}" for family, sizes in _SIZES.items() for vcpus in sizes]
        names = dict.fromkeys((*sized, *MACHINE_TYPES))
        return [self.machine_type(zone, name) for name in names]

    def machine_type(self, zone: str, name: str) -> Json:
        machine = _find(name)
        if machine is None or machine.memory_gib is None:
            raise not_found(self.links.path("zones", zone, "machineTypes", name))
        accelerators: list[Json] = []
        if machine.gpu is not None:
            gpu = machine.gpu
            accelerators = [{"guestAcceleratorType": gpu.type, "guestAcceleratorCount": gpu.count}]
        memory_mb = round(machine.memory_gib * 1024)
        return self._constant("compute#machineType", name, "zones", zone, "machineTypes") | {
            "description": f"{machine.vcpus} vCPUs, {memory_mb / 1024:g} GB RAM",
            "guestCpus": machine.vcpus,
            "memoryMb": memory_mb,
            "zone": zone,
            "isSharedCpu": machine.billed_vcpus is not None,
            "accelerators": accelerators,
        }

    def accelerators_of(self, zone: str, machine_type: str) -> tuple[tuple[str, int], ...]:
        """Return type and count of the accelerators that are part of the machine type."""
        accelerators = self.machine_type(zone, machine_type)["accelerators"]
        return tuple(
            (item["guestAcceleratorType"], item["guestAcceleratorCount"]) for item in accelerators
        )

    def disk_types_of(self, machine_type: str) -> tuple[str, ...]:
        """Return the disk types from which the machine type can boot."""
        return family_of(machine_type).boot_disks

    def accelerator_types(self, zone: str) -> list[Json]:
        return [
            self._constant("compute#acceleratorType", name, "zones", zone, "acceleratorTypes")
            | {"zone": self.links("zones", zone), "maximumCardsPerInstance": 8}
            for name in ACCELERATOR_TYPES
        ]

    def environment_of(self, image: str) -> str | None:
        """Return the Python environment of an image; None: only the machine's own programs.

        Raises ApiError (400).
        """
        if not self.images:
            return None
        name = basename(image)
        environment = self.images.get(name, self.images.get("default"))
        if environment is None:
            field_path = "resource.disks[0].initializeParams.sourceImage"
            raise invalid(field_path, image, "The referenced image resource cannot be found.")
        return environment

    def _constant(self, kind: str, name: str, *collection: str) -> Json:
        return {
            "kind": kind,
            "id": str(stable_id("/".join((*collection, name)))),
            # Google's value for all fixed resources.
            "creationTimestamp": "1969-12-31T16:00:00.000-08:00",
            "name": name,
            "description": name,
            "selfLink": self.links(*collection, name),
        }


def _find(name: str) -> MachineType | None:
    """Return a machine type that exists here, predefined or custom; None if there is none."""
    machine = find_machine_type(name)
    if machine is None or _CUSTOM in name or machine.family.sizes:
        return machine
    is_sold = machine.vcpus in _SIZES.get(machine.family.name, ())
    return machine if is_sold else None
