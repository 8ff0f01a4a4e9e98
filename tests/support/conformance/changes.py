"""What changed in Google's APIs between two releases of their documents, for the methods that the
product uses.

    python -m tests.support.conformance.changes OLD NEW     two folders of discovery documents

`make lock` calls it with the documents of the installed release and of the locked one.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.support.conformance.documents import APIS, Json, document, methods

USED: Final = (
    "artifactregistry.projects.locations.repositories.dockerImages.get",
    "cloudbilling.services.skus.list",
    "cloudfunctions.projects.locations.functions.list",
    "cloudresourcemanager.projects.testIamPermissions",
    "cloudscheduler.projects.locations.jobs.create",
    "cloudscheduler.projects.locations.jobs.delete",
    "cloudscheduler.projects.locations.jobs.list",
    "compute.images.getFromFamily",
    "compute.instances.aggregatedList",
    "compute.instances.bulkInsert",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.getGuestAttributes",
    "compute.instances.getSerialPortOutput",
    "compute.instances.list",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.machineTypes.list",
    "compute.resourcePolicies.delete",
    "compute.resourcePolicies.insert",
    "compute.zoneOperations.list",
    "compute.zoneOperations.wait",
    "iam.projects.roles.list",
    "iam.projects.serviceAccounts.testIamPermissions",
    "logging.entries.list",
    "logging.entries.write",
    "monitoring.projects.timeSeries.create",
    "monitoring.projects.timeSeries.list",
    "orgpolicy.projects.policies.getEffectivePolicy",
    "pubsub.projects.topics.publish",
    "secretmanager.projects.secrets.versions.access",
    "storage.objects.get",
    "storage.objects.insert",
    "tpu.projects.locations.nodes.create",
    "tpu.projects.locations.nodes.delete",
    "tpu.projects.locations.nodes.list",
    "tpu.projects.locations.nodes.patch",
    "tpu.projects.locations.queuedResources.create",
    "tpu.projects.locations.queuedResources.delete",
    "tpu.projects.locations.queuedResources.list",
)


def changes(old: Path, new: Path) -> Iterator[str]:
    """Yield one line for each parameter, field and enum value of a used method that appeared or
    vanished.
    """
    for api in APIS:
        before, after = _parts(api, old), _parts(api, new)
        yield from (f"- {api} {part}" for part in sorted(before - after))
        yield from (f"+ {api} {part}" for part in sorted(after - before))


def _parts(api: str, folder: Path) -> frozenset[str]:
    content = document(api, folder)
    return frozenset(
        part
        for method in methods(content)
        if method["id"] in USED
        for part in _parts_of(content, method)
    )


def _parts_of(content: Json, method: Json) -> Iterator[str]:
    name = method["id"]
    yield f"{name} {method['httpMethod']} {method.get('flatPath') or method['path']}"
    yield from (f"{name}({parameter})" for parameter in method.get("parameters", {}))
    for role in ("request", "response"):
        if role in method:
            yield from _fields(
                content["schemas"], method[role]["$ref"], f"{name} {role}", frozenset()
            )


def _fields(schemas: Json, reference: str, at: str, within: frozenset[str]) -> Iterator[str]:
    """Yield the fields below a schema; those of a schema that contains itself once."""
    if reference in within:
        return
    for name, field in schemas[reference].get("properties", {}).items():
        inner = field.get("items") or field.get("additionalProperties") or field
        yield f"{at}.{name}: {inner.get('type', inner.get('$ref', ''))}"
        yield from (f"{at}.{name}={value}" for value in inner.get("enum", ()))
        if "$ref" in inner:
            yield from _fields(schemas, inner["$ref"], f"{at}.{name}", within | {reference})


if __name__ == "__main__":
    found = list(changes(Path(sys.argv[1]), Path(sys.argv[2])))
    sys.stdout.writelines(
        f"{line}\n" for line in found or ["Google's documents have the same methods and fields."]
    )
