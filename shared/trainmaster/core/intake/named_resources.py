"""Resources of Google Cloud that a job names, and the list of those that a job with an unknown
submitter may use.

Trainmaster uses these resources with its own permissions, which are wider than those of most
submitters. Something else must therefore authorize each use: the submitter's own token if there is
one (the API), else a list that the administrator keeps (`TRAINMASTER_ALLOWED_RESOURCES`).
docs/decisions/0033-acting-for-others.md
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

SETTING: Final = "TRAINMASTER_ALLOWED_RESOURCES"


class ResourceKind(StrEnum):
    SERVICE_ACCOUNT = "service_account"
    NETWORK = "network"
    IMAGE = "image"
    RESERVATION = "reservation"
    KMS_KEY = "kms_key"
    SECRET = "secret"  # noqa: S105 - a kind of resource

    @property
    def words(self) -> str:
        return "KMS key" if self is ResourceKind.KMS_KEY else self.value.replace("_", " ")


_COLLECTIONS: Final = {ResourceKind.RESERVATION: "reservations", ResourceKind.SECRET: "secrets"}
"""Kinds that a job may name in short, without the project, and the collection in the full name."""


@dataclass(frozen=True, slots=True)
class NamedResource:
    """A resource that a job names."""

    kind: ResourceKind
    name: str
    """As the job names it: an e-mail address, a resource name, or the short name of a reservation
    or secret.
    """
    field: str
    """Path of the field that names it, in the spelling of the document."""

    def full_name(self, project: str) -> str:
        """Return the resource name, without the version of a secret.

        `project`: that of short names.
        """
        name = self.name
        collection = _COLLECTIONS.get(self.kind)
        if collection is None:
            return name
        if not name.startswith("projects/"):
            name = f"projects/{project}/{collection}/{name}"
        return "/".join(name.split("/")[:4])


@dataclass(frozen=True, slots=True)
class AllowedResources:
    """The resources that every job may use."""

    project: str = ""
    """Project of short names."""
    patterns: Sequence[str] = ()
    """`KIND=NAME` with full names. A `*` at the end stands for any rest."""

    def allow(self, resource: NamedResource) -> bool:
        text = self.entry_for(resource)
        return any(
            text.startswith(pattern[:-1]) if pattern.endswith("*") else text == pattern
            for pattern in self.patterns
        )

    def entry_for(self, resource: NamedResource) -> str:
        """Return the entry that allows exactly this resource."""
        return f"{resource.kind}={resource.full_name(self.project)}"
