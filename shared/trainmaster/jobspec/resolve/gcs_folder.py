"""Resolve whether programs find the buckets of Cloud Storage below /gcs, as on Vertex AI.

The agent mounts them there with gcsfuse before the program starts. An installation without gcsfuse
refuses a job that requires them, and accepts one that would only have had them on Vertex AI, with a
note (`flows.job_creation.gcs_folder`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Final

from trainmaster.core.model.origin import Dialect
from trainmaster.core.model.plan import GcsFolder
from trainmaster.core.model.task_group import Program
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.problems import Problems, quoted
from trainmaster.jobspec.reading.field_names import EXTENSION
from trainmaster.jobspec.resolve.resolved_spec import ResolvedSpec

GCS: Final = "/gcs/"
"""Folder below which each bucket is a folder."""


def resolve_gcs_folder(extension: Extension, spec: ResolvedSpec, problems: Problems) -> GcsFolder:
    """Return whether programs find buckets below /gcs.

    Add a problem if the job forbids what it uses, and a note if the boot image is the user's.
    """
    named = next((text for text in _texts(spec.programs.values()) if GCS in text), None)
    if extension.gcs is False and named is not None:
        problems.add(
            (EXTENSION, "gcs"),
            f"is false, and the job names a folder below {GCS}: {quoted(named)}",
            example="true",
        )
    is_required = extension.gcs is True or named is not None
    is_usual = spec.dialect is Dialect.VERTEX  # whose programs may rely on it without naming it
    if extension.gcs is False or not (is_required or is_usual):
        return GcsFolder.OFF
    if extension.image is not None and not any(role.is_tpu for role in spec.roles):
        reason = (
            "gcsfuse needs the package fuse3, which is installed from the package archive where the"
            " image lacks it"
        )
        # With equal values, it is a note about the field, and no substitution.
        problems.substitute((EXTENSION, "image"), extension.image, extension.image, reason)
    return GcsFolder.REQUIRED if is_required else GcsFolder.IF_POSSIBLE


def _texts(programs: Collection[Program]) -> Iterator[str]:
    """Yield arguments, commands and variables of the programs."""
    for program in programs:
        yield from program.args
        if program.container is not None:
            yield from program.container.command
    for program in programs:
        for variable in program.environment:
            yield variable.value
