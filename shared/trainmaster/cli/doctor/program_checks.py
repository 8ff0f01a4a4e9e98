"""Checks of the programs of one job: the content of their packages and of their job directories."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, Protocol

from trainmaster.cli.doctor.file_checks import folder_findings
from trainmaster.cli.doctor.findings import Finding, limit, not_checked, ok
from trainmaster.core.intake.registry_images import parse_registry_image
from trainmaster.core.model.package_uri import is_built_in
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.task_group import Program
from trainmaster.errors import TemporaryError
from trainmaster.flows.job_creation.package_versions import programs_of
from trainmaster.gcp.errors import USER_ERRORS
from trainmaster.ports import BucketForbiddenError, Objects, ObjectTimes
from trainmaster.program_files.packages import check_module, files_of, has_module

PACKAGE_BYTES_MAX: Final = 100 << 20
"""Larger packages are not read."""
UNPACKED_BYTES_MAX: Final = 2 << 30
_JOINED_ARGUMENT: Final = re.compile(r"--?[A-Za-z][\w-]*\s+\S")
"""An option and its value in one argument: `--epochs 3`."""


class CheckedObjects(Objects, ObjectTimes, Protocol):
    """Cloud Storage with the user's credentials."""


def check_programs(
    plan: Plan, objects: CheckedObjects, staged: Objects | None = None
) -> Iterator[Finding]:
    """Yield what is wrong with the programs, and what cannot be seen.

    `staged`: packages that are not uploaded yet.
    """
    for program in dict.fromkeys(programs_of(plan)):
        if program.container and not parse_registry_image(program.container.image):
            reason = "only images in Google's registries are looked up"
            yield not_checked(f"image {program.container.image}", reason)
    yield from check_modules(plan, objects, staged)
    for argument in joined_arguments(plan):
        yield limit(joined_argument_words(argument), "write each word as an argument of its own")
    directories = [program.job_dir for program in programs_of(plan) if program.job_dir]
    for directory in dict.fromkeys(directories):
        yield from _check_job_dir(directory, objects)


def check_modules(plan: Plan, objects: Objects, staged: Objects | None = None) -> Iterator[Finding]:
    """Yield a problem if a package of the job has no such module."""
    for program in dict.fromkeys(programs_of(plan)):
        if program.python_module:
            yield from _check_module(program, objects, staged)


def joined_arguments(plan: Plan) -> list[str]:
    """Return arguments such as `--epochs 3`: an option and its value in one word."""
    arguments = [argument for program in programs_of(plan) for argument in program.args]
    return [found for found in dict.fromkeys(arguments) if _JOINED_ARGUMENT.match(found)]


def joined_argument_words(argument: str) -> str:
    return f"{argument!r} is one argument with a space in it, and few programs accept that"


def _check_module(program: Program, objects: Objects, staged: Objects | None) -> Iterator[Finding]:
    """Yield whether a package of the job has the module; nothing if a dependency may have it,
    because its parent package is in no package of the job.
    """
    files: set[str] = set()
    own_uris = [uri.partition("#")[0] for uri in program.package_uris if not is_built_in(uri)]
    for uri in own_uris:
        source = staged if staged and staged.read(uri, max_bytes=1) else objects
        try:
            content = source.read(uri, max_bytes=PACKAGE_BYTES_MAX + 1)
        except (TemporaryError, *USER_ERRORS):
            content = None
        if content is None or len(content) > PACKAGE_BYTES_MAX:
            yield not_checked(
                f"module {program.python_module}", f"{uri} cannot be read, or is larger than 100 MB"
            )
            return
        files |= files_of(content, UNPACKED_BYTES_MAX) or frozenset()
    module = program.python_module
    yield from folder_findings(check_module(module, frozenset(files)))
    if has_module(module, frozenset(files)):
        yield ok(f"module {module}: a package of the job has it")


def _check_job_dir(directory: str, objects: ObjectTimes) -> Iterator[Finding]:
    try:
        found = objects.created(directory, 1)
    except BucketForbiddenError:
        return
    if found:
        words = (
            f"{directory} already has files: {found[0].name} was written at"
            f" {found[0].created_at:%Y-%m-%d %H:%M}"
        )
        yield limit(words, "a program that looks for checkpoints there continues from them")
