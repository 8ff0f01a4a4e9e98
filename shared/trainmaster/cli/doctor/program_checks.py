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
from trainmaster.program_files.archives import Archive, open_archive
from trainmaster.program_files.packages import all_files, check_packages, has_module
from trainmaster.program_files.requirements import RuntimePackages, runtime_of
from trainmaster.program_files.source_files import PROGRAM_BYTES_MAX
from trainmaster.wiring.folders import MODULE as FOLDER_MODULE

PACKAGE_BYTES_MAX: Final = 100 << 20
"""Larger packages are not read."""
UNPACKED_BYTES_MAX: Final = 2 << 30
"""Larger tar archives are not unpacked to their end, and nothing is known about them."""
SOURCE_BYTES_MAX: Final = PROGRAM_BYTES_MAX
"""Most bytes of source that are read and parsed, in all packages of a program together."""
_JOINED_ARGUMENT: Final = re.compile(r"--?[A-Za-z][\w-]*\s+\S")
"""An option and its value in one argument: `--epochs 3`."""


class CheckedObjects(Objects, ObjectTimes, Protocol):
    """Cloud Storage with the user's credentials."""


def check_programs(
    plan: Plan, objects: CheckedObjects, staged: Objects | None = None
) -> Iterator[Finding]:
    """Yield what is wrong with the programs, and what cannot be seen.

    `staged`: packages that are not uploaded yet. `check_staged_programs` judges the programs that
    have no other packages.
    """
    for program in dict.fromkeys(programs_of(plan)):
        if program.container and not parse_registry_image(program.container.image):
            reason = "only images in Google's registries are looked up"
            yield not_checked(f"image {program.container.image}", reason)
    for program in _module_programs(plan):
        if staged is None or not _is_staged(program, staged):
            yield from _check_packages(program, runtime_of(plan), objects, staged)
    for argument in joined_arguments(plan):
        yield limit(joined_argument_words(argument), "write each word as an argument of its own")
    directories = [program.job_dir for program in programs_of(plan) if program.job_dir]
    for directory in dict.fromkeys(directories):
        yield from _check_job_dir(directory, objects)


def check_staged_programs(plan: Plan, staged: Objects) -> Iterator[Finding]:
    """Yield what is wrong with the programs all of whose packages are not uploaded yet.

    It needs neither an installation nor credentials.
    """
    for program in _module_programs(plan):
        if _is_staged(program, staged):
            yield from _check_packages(program, runtime_of(plan), staged)


def _module_programs(plan: Plan) -> list[Program]:
    return [program for program in dict.fromkeys(programs_of(plan)) if program.python_module]


def _own_uris(program: Program) -> list[str]:
    """Return the objects of the job's own packages, without their versions."""
    return [uri.partition("#")[0] for uri in program.package_uris if not is_built_in(uri)]


def _is_staged(program: Program, staged: Objects) -> bool:
    uris = _own_uris(program)
    return bool(uris) and all(staged.generation(uri) is not None for uri in uris)


def joined_arguments(plan: Plan) -> list[str]:
    """Return arguments such as `--epochs 3`: an option and its value in one word."""
    arguments = [argument for program in programs_of(plan) for argument in program.args]
    return [found for found in dict.fromkeys(arguments) if _JOINED_ARGUMENT.match(found)]


def joined_argument_words(argument: str) -> str:
    return f"{argument!r} is one argument with a space in it, and few programs accept that"


def _check_packages(
    program: Program, runtime: RuntimePackages, objects: Objects, staged: Objects | None = None
) -> Iterator[Finding]:
    """Yield what is wrong with the program, and whether a package of the job has its module.

    Nothing is known about a module that a dependency may have, because its parent package is in no
    package of the job.
    """
    archives: list[Archive] = []
    bytes_left = SOURCE_BYTES_MAX
    for uri in _own_uris(program):
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
        archive = open_archive(content, UNPACKED_BYTES_MAX, bytes_left) or Archive()
        bytes_left -= archive.bytes_read
        archives.append(archive)
    module = program.python_module
    if module != FOLDER_MODULE:  # a folder is judged before it is packed
        yield from folder_findings(check_packages(module, archives, runtime, SOURCE_BYTES_MAX))
    if has_module(module, all_files(archives)):
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
