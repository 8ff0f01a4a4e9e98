"""Existence of resources of Google Cloud that a job names."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from trainmaster.core.intake.registry_images import RegistryImage


class Existence(StrEnum):
    """The result of a look-up."""

    EXISTS = "exists"
    MISSING = "missing"
    UNKNOWN = "unknown"  # the installation may not see the resource, or its API is not enabled


class Resources(Protocol):
    """Reads of the control plane of Google Cloud. No method reads the content of a secret or an image.

    All methods raise TemporaryError for transient errors.
    """

    def service_account(self, email: str) -> Existence:
        """Look up a service account by its e-mail address."""
        ...

    def secret_version(self, name: str) -> Existence:
        """Look up a secret version: `SECRET`, `SECRET/versions/VERSION`, or a full name.

        The default version is the latest one. MISSING also if the version is disabled or destroyed.
        """
        ...

    def image(self, image: RegistryImage) -> Existence:
        """Look up an image by its tag or digest."""
        ...
