"""The resources of Google Cloud that a job names, with the paths of the fields that name them."""

from __future__ import annotations

from typing import Final

from trainmaster.core.intake.named_resources import NamedResource, ResourceKind
from trainmaster.core.model.origin import Dialect
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.problems import FieldPath, Problems
from trainmaster.jobspec.reading.field_names import EXTENSION, JOB_SPEC, TRAINING_INPUT
from trainmaster.jobspec.resolve.resolved_spec import ResolvedSpec

_BODIES: Final = {Dialect.AI_PLATFORM: TRAINING_INPUT, Dialect.VERTEX: JOB_SPEC}
KMS_KEYS: Final[dict[Dialect, FieldPath]] = {
    Dialect.AI_PLATFORM: (TRAINING_INPUT, "encryptionConfig", "kmsKeyName"),
    Dialect.VERTEX: ("encryptionSpec", "kmsKeyName"),
}


def named_resources(
    spec: ResolvedSpec, extension: Extension, problems: Problems
) -> tuple[NamedResource, ...]:
    """Return the resources in the order of the document's own fields, then those of `trainmaster`.

    `trainmaster.image` of a job with TPU VMs is a software version, not a resource.
    """
    body = _BODIES[spec.dialect]
    has_image = not any(role.is_tpu for role in spec.roles)
    named: list[tuple[ResourceKind, str | None, FieldPath]] = [
        (ResourceKind.SERVICE_ACCOUNT, spec.service_account, (body, "serviceAccount")),
        (ResourceKind.NETWORK, spec.network, (body, "network")),
        (ResourceKind.KMS_KEY, spec.kms_key, KMS_KEYS[spec.dialect]),
        (ResourceKind.IMAGE, extension.image if has_image else None, (EXTENSION, "image")),
        (ResourceKind.RESERVATION, extension.reservation, (EXTENSION, "reservation")),
    ]
    lists = extension.placement.lists if extension.placement else {}
    for list_name, alternatives in lists.items():
        for index, alternative in enumerate(alternatives):
            path: FieldPath = (EXTENSION, "placement", list_name, index, "reservation")
            named.append((ResourceKind.RESERVATION, alternative.reservation, path))
    for variable, secret in extension.secrets.items():
        named.append((ResourceKind.SECRET, secret, (EXTENSION, "secrets", variable)))
    return tuple(
        NamedResource(kind, name, problems.spelled_path(path)) for kind, name, path in named if name
    )
