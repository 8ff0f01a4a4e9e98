"""The Resources port in memory."""

from __future__ import annotations

from trainmaster.core.intake.registry_images import RegistryImage
from trainmaster.ports import Existence


class MemoryResources:
    """See `trainmaster.ports.Resources`. Everything exists, unless it is named here."""

    def __init__(self) -> None:
        self.missing: set[str] = set()
        """E-mail addresses, secrets as jobs name them, and resource names of images."""
        self.hidden: set[str] = set()
        """The same, for resources that the installation may not see."""

        self.digests: dict[str, str] = {}
        """Digests of images, by their resource names."""

    def service_account(self, email: str) -> Existence:
        """Look up a service account by its e-mail address."""
        return self._find(email)

    def secret_version(self, name: str) -> Existence:
        """Look up a secret version: `SECRET`, `SECRET/versions/VERSION`, or a full name."""
        return self._find(name)

    def image(self, image: RegistryImage) -> tuple[Existence, str]:
        """Look up an image by its tag or digest."""
        existence = self._find(image.resource)
        digest = image.digest or self.digests.get(image.resource, "")
        return existence, digest if existence is Existence.EXISTS else ""

    def _find(self, name: str) -> Existence:
        if name in self.hidden:
            return Existence.UNKNOWN
        return Existence.MISSING if name in self.missing else Existence.EXISTS
