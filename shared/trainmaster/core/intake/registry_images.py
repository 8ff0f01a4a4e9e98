"""Container images in Google's registries: their names in the API of Artifact Registry."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

_ARTIFACT_REGISTRY: Final = re.compile(r"(?P<location>[a-z0-9-]+)-docker\.pkg\.dev/(?P<path>.+)")
_CONTAINER_REGISTRY: Final = re.compile(
    r"(?P<host>(?:(?P<part>us|eu|asia)\.)?gcr\.io)/(?P<path>.+)"
)
_LOCATIONS: Final = {None: "us", "us": "us", "eu": "europe", "asia": "asia"}
"""Location of the repository that serves each host of gcr.io.

Source: "Transition to repositories with gcr.io domain support".
"""
_NAME: Final = re.compile(
    r"(?P<name>[^:@]+)(?::(?P<tag>[^@]+))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)

DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class RegistryImage:
    """An image, as Artifact Registry names it."""

    project: str
    """Project id."""
    location: str
    """Location of the repository, such as `us` or `europe-west4`."""
    repository: str
    package: str
    """Name of the image within its repository; it may contain slashes."""
    tag: str
    """The tag; empty if a digest is given, because only the digest counts then."""
    digest: str = ""
    """`sha256:` and 64 hexadecimal digits; empty: the tag counts."""

    @property
    def resource(self) -> str:
        """Resource name of the tag, or of the version if a digest is given."""
        package = quote(self.package, safe="")
        location = f"projects/{self.project}/locations/{self.location}"
        base = f"{location}/repositories/{self.repository}/packages/{package}"
        return f"{base}/versions/{self.digest}" if self.digest else f"{base}/tags/{self.tag}"


def parse_registry_image(image: str) -> RegistryImage | None:
    """Return the parts of an image in one of Google's registries; None for any other registry."""
    match = _NAME.fullmatch(image)
    if match is None:
        return None
    tag = "" if match["digest"] else match["tag"] or "latest"
    digest = match["digest"] or ""
    if host_match := _ARTIFACT_REGISTRY.fullmatch(match["name"]):
        parts = host_match["path"].split("/", 2)
        if len(parts) == len(("project", "repository", "package")):
            return RegistryImage(parts[0], host_match["location"], parts[1], parts[2], tag, digest)
    elif host_match := _CONTAINER_REGISTRY.fullmatch(match["name"]):
        project, _, package = host_match["path"].partition("/")
        if package:
            return RegistryImage(
                project, _LOCATIONS[host_match["part"]], host_match["host"], package, tag, digest
            )
    return None
