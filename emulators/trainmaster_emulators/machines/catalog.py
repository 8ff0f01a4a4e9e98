"""The fixed resources: regions, zones, machine types, accelerators, images; and the URLs of all
resources.

This is a selection: the regions of the examples, and the machine families that a training job may
use. Capacity and prices are not modelled. Source of the sizes:
https://cloud.google.com/compute/docs/machine-resource.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

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

# family: (memory in MiB per vCPU, available vCPU counts)
_FAMILIES: Final[Mapping[str, tuple[float, tuple[int, ...]]]] = {
    "n1-standard": (3840, (1, 2, 4, 8, 16, 32, 64, 96)),
    "n1-highmem": (6656, (2, 4, 8, 16, 32, 64, 96)),
    "n1-highcpu": (921.6, (2, 4, 8, 16, 32, 64, 96)),
    "n2-standard": (4096, (2, 4, 8, 16, 32, 48, 64, 80, 96, 128)),
    "n2-highmem": (8192, (2, 4, 8, 16, 32, 48, 64, 80, 96, 128)),
    "n2-highcpu": (1024, (2, 4, 8, 16, 32, 48, 64, 80, 96)),
    "e2-standard": (4096, (2, 4, 8, 16, 32)),
    "e2-highmem": (8192, (2, 4, 8, 16)),
    "e2-highcpu": (1024, (2, 4, 8, 16, 32)),
    "n2d-standard": (4096, (2, 4, 8, 16, 32, 48, 64, 80, 96, 128, 224)),
    "n2d-highmem": (8192, (2, 4, 8, 16, 32, 48, 64, 80, 96)),
    "n4-standard": (4096, (2, 4, 8, 16, 32, 48, 64, 80)),
    "n4-highmem": (8192, (2, 4, 8, 16, 32, 48, 64, 80)),
    "n4-highcpu": (2048, (2, 4, 8, 16, 32, 48, 64, 80)),
    "c2-standard": (4096, (4, 8, 16, 30, 60)),
    "c2d-standard": (4096, (2, 4, 8, 16, 32, 56, 112)),
    "c3-standard": (4096, (4, 8, 22, 44, 88, 176)),
    "c3-highmem": (8192, (4, 8, 22, 44, 88, 176)),
    "c3-highcpu": (2048, (4, 8, 22, 44, 88, 176)),
    "c3d-standard": (4096, (4, 8, 16, 30, 60, 90, 180, 360)),
    "c4-standard": (3840, (2, 4, 8, 16, 24, 32, 48, 96, 144, 192, 288)),
    "c4-highmem": (7936, (2, 4, 8, 16, 24, 32, 48, 96, 144, 192, 288)),
    "c4-highcpu": (2048, (2, 4, 8, 16, 24, 32, 48, 96, 144, 192, 288)),
    "c4d-standard": (3968, (2, 4, 8, 16, 32, 48, 64, 96, 192, 384)),
    "c4d-highcpu": (1920, (2, 4, 8, 16, 32, 48, 64, 96, 192, 384)),
    "m3-ultramem": (31232, (32, 64, 128)),
    "h4d-standard": (3840, (192,)),
    "h4d-highmem": (7936, (192,)),
    "t2d-standard": (4096, (1, 2, 4, 8, 16, 32, 48, 60)),
}

_WHOLE_GIB: Final = ("c4-", "c4d-")
"""Series whose memory is rounded down to whole GiB."""
_EXCEPTIONS: Final[Mapping[str, int]] = {"n2-highmem-128": 884736}
"""Machine types with another memory than the rule of their family says, in MiB."""

# Machine types with built-in accelerators: (vCPUs, memory in MiB, accelerator type, count)
_ACCELERATED: Final[Mapping[str, tuple[int, int, str, int]]] = {
    "a2-highgpu-1g": (12, 87040, "nvidia-tesla-a100", 1),
    "a2-highgpu-2g": (24, 174080, "nvidia-tesla-a100", 2),
    "a2-highgpu-4g": (48, 348160, "nvidia-tesla-a100", 4),
    "a2-highgpu-8g": (96, 696320, "nvidia-tesla-a100", 8),
    "a2-megagpu-16g": (96, 1392640, "nvidia-tesla-a100", 16),
    "a2-ultragpu-1g": (12, 174080, "nvidia-a100-80gb", 1),
    "a2-ultragpu-8g": (96, 1392640, "nvidia-a100-80gb", 8),
    "a2-ultragpu-2g": (24, 348160, "nvidia-a100-80gb", 2),
    "a2-ultragpu-4g": (48, 696320, "nvidia-a100-80gb", 4),
    "a3-highgpu-1g": (26, 239616, "nvidia-h100-80gb", 1),
    "a3-highgpu-2g": (52, 479232, "nvidia-h100-80gb", 2),
    "a3-highgpu-4g": (104, 958464, "nvidia-h100-80gb", 4),
    "a3-highgpu-8g": (208, 1916928, "nvidia-h100-80gb", 8),
    "a3-edgegpu-8g": (208, 1916928, "nvidia-h100-80gb", 8),
    "a3-megagpu-8g": (208, 1916928, "nvidia-h100-mega-80gb", 8),
    "a3-ultragpu-8g": (224, 3022848, "nvidia-h200-141gb", 8),
    "a4-highgpu-8g": (224, 4063232, "nvidia-b200", 8),
    "g4-standard-48": (48, 184320, "nvidia-rtx-pro-6000", 1),
    "g4-standard-96": (96, 368640, "nvidia-rtx-pro-6000", 2),
    "g4-standard-192": (192, 737280, "nvidia-rtx-pro-6000", 4),
    "g4-standard-384": (384, 1474560, "nvidia-rtx-pro-6000", 8),
    "g2-standard-4": (4, 16384, "nvidia-l4", 1),
    "g2-standard-8": (8, 32768, "nvidia-l4", 1),
    "g2-standard-12": (12, 49152, "nvidia-l4", 1),
    "g2-standard-16": (16, 65536, "nvidia-l4", 1),
    "g2-standard-24": (24, 98304, "nvidia-l4", 2),
    "g2-standard-32": (32, 131072, "nvidia-l4", 1),
    "g2-standard-48": (48, 196608, "nvidia-l4", 4),
    "g2-standard-96": (96, 393216, "nvidia-l4", 8),
}

_PERSISTENT: Final = ("pd-standard", "pd-balanced", "pd-ssd")
# Boot disk types of the machine series that do not support all of Persistent Disk. Source: "Choose
# a disk type", 2025.
_DISKS: Final[Mapping[str, tuple[str, ...]]] = {
    "n4": ("hyperdisk-balanced",),
    "n4d": ("hyperdisk-balanced",),
    "c4": ("hyperdisk-balanced",),
    "c4d": ("hyperdisk-balanced",),
    "h4d": ("hyperdisk-balanced",),
    "a4": ("hyperdisk-balanced",),
    "g4": ("hyperdisk-balanced",),
    "a3-ultragpu": ("hyperdisk-balanced",),
    "a3": ("pd-balanced", "pd-ssd", "hyperdisk-balanced"),
    "c3": ("pd-balanced", "pd-ssd", "hyperdisk-balanced"),
    "c3d": ("pd-balanced", "pd-ssd", "hyperdisk-balanced"),
    "m3": ("pd-balanced", "pd-ssd", "hyperdisk-balanced"),
    "g2": ("pd-balanced", "pd-ssd"),
}

ACCELERATOR_TYPES: Final = (
    "nvidia-tesla-k80",
    "nvidia-tesla-p4",
    "nvidia-tesla-p100",
    "nvidia-tesla-v100",
    "nvidia-tesla-t4",
    "nvidia-l4",
    "nvidia-tesla-a100",
    "nvidia-a100-80gb",
    "nvidia-h100-80gb",
    "nvidia-h100-mega-80gb",
    "nvidia-h200-141gb",
    "nvidia-b200",
    "nvidia-rtx-pro-6000",
)
_WITH_LOCAL_SSD: Final = "-lssd"
_CUSTOM: Final = re.compile(r"(?:e2|n1|n2|n2d|n4)-custom-([1-9][0-9]*)-([1-9][0-9]*)(?:-ext)?")


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
        names: list[str] = []
        for family, (_, sizes) in _FAMILIES.items():
            names += [f"{family}-{cpus}" for cpus in sizes]
        names += _ACCELERATED
        return [self.machine_type(zone, name) for name in names]

    def machine_type(self, zone: str, name: str) -> Json:
        accelerators: list[Json] = []
        if name in _ACCELERATED:
            cpus, memory_mb, accelerator, count = _ACCELERATED[name]
            accelerators = [{"guestAcceleratorType": accelerator, "guestAcceleratorCount": count}]
        else:
            size = _size_without_accelerators(name)
            if size is None:
                raise not_found(self.links.path("zones", zone, "machineTypes", name))
            cpus, memory_mb = size
        return self._constant("compute#machineType", name, "zones", zone, "machineTypes") | {
            "description": f"{cpus} vCPUs, {memory_mb / 1024:g} GB RAM",
            "guestCpus": cpus,
            "memoryMb": memory_mb,
            "zone": zone,
            "isSharedCpu": False,
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
        series, kind = machine_type.split("-")[:2]
        return _DISKS.get(f"{series}-{kind}") or _DISKS.get(series) or _PERSISTENT

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


def _size_without_accelerators(name: str) -> tuple[int, int] | None:
    """Return vCPUs and memory in MiB of a machine type without built-in accelerators, predefined or
    custom; None if there is no such type.
    """
    custom = _CUSTOM.fullmatch(name)
    if custom:
        return int(custom[1]), int(custom[2])
    family, _, number = name.removesuffix(_WITH_LOCAL_SSD).rpartition("-")
    mb_per_cpu, sizes = _FAMILIES.get(family, (0, ()))
    if not number.isdigit() or int(number) not in sizes:
        return None
    cpus = int(number)
    memory_mb = _EXCEPTIONS.get(name) or round(mb_per_cpu * cpus)
    if name.startswith(_WHOLE_GIB):
        memory_mb -= memory_mb % 1024
    return cpus, memory_mb
