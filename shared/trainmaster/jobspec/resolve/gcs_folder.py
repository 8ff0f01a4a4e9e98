"""Resolve whether programs find the buckets of Cloud Storage below /gcs, as on Vertex AI."""

from __future__ import annotations

from typing import Final

from trainmaster.core.model.plan import Container, Dialect, GcsFolder
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.problems import Problems, quoted
from trainmaster.jobspec.reading.document_kinds import EXTENSION
from trainmaster.jobspec.resolve.resolved_spec import ResolvedSpec

GCS: Final = "/gcs/"
_NO_CONTAINER: Final = Container("")


def resolve_gcs_folder(extension: Extension, spec: ResolvedSpec, problems: Problems) -> GcsFolder:
    """Return whether programs find buckets below /gcs, and add a note if the boot image is the
    user's.
    """
    programs = spec.programs.values()
    texts = [
        text
        for program in programs
        for text in (*program.args, *(program.container or _NO_CONTAINER).command)
    ]
    texts += [variable.value for program in programs for variable in program.environment]
    named = next((text for text in texts if GCS in text), None)
    if extension.gcs is False and named is not None:
        problems.add(
            (EXTENSION, "gcs"),
            f"is false, and the job names a folder below {GCS}: {quoted(named)}",
            "true",
        )
    if extension.gcs is False or not (extension.gcs or named or spec.dialect is Dialect.VERTEX):
        return GcsFolder.OFF
    if extension.image is not None and not any(role.is_tpu for role in spec.roles):
        reason = (
            "gcsfuse needs the package fuse3, which is installed from the package archive where the"
            " image lacks it"
        )
        problems.substitute((EXTENSION, "image"), extension.image, extension.image, reason)
    return GcsFolder.REQUIRED if extension.gcs or named else GcsFolder.IF_POSSIBLE
