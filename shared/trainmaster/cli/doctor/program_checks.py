"""Checks of the programs of one job: the content of their packages and of their job directories."""

from __future__ import annotations

import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Final, Protocol

from trainmaster.cli.doctor.findings import Finding, limit, not_checked, ok, problem
from trainmaster.core.intake.registry_images import parse_registry_image
from trainmaster.core.model.package_uri import is_built_in
from trainmaster.core.model.plan import Plan, Program
from trainmaster.errors import TemporaryError
from trainmaster.flows.job_creation.package_versions import programs_of
from trainmaster.gcp.errors import USER_ERRORS
from trainmaster.ports import BucketForbiddenError, Objects, ObjectTimes
from trainmaster.program_files.findings import ProgramFinding

PACKAGE_BYTES_MAX: Final = 100 << 20
"""Larger packages are not read."""
_JOINED_ARGUMENT: Final = re.compile(r"--?[A-Za-z][\w-]*\s+\S")
"""An option and its value in one argument: `--epochs 3`."""
_COMPILED_SOURCES: Final = (".pyx", ".c", ".cc", ".cpp", ".cu", ".rs")


class CheckedObjects(Objects, ObjectTimes, Protocol):
    """Cloud Storage with the user's credentials."""


def folder_findings(found: Iterable[ProgramFinding]) -> Iterator[Finding]:
    """Yield the findings of a folder: a problem if the program must fail, else a warning."""
    for finding in found:
        report = problem if finding.must_fail else limit
        yield report(finding.problem, finding.remedy)


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
    found: set[str] = set()
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
        in_package = _files_of(content)
        files |= in_package
        found |= set(filter(None, map(_module_path, in_package)))
    module = program.python_module
    parent, _, name = f"/{module.replace('.', '/')}".rpartition("/")
    if name == "py" and any(path.endswith(parent) for path in found):
        words = f"{module} is the name of a file, and no module"
        yield problem(words, f"correct pythonModule: {module.removesuffix('.py')}")
        return
    siblings: set[str] = set()
    for path in found:
        folder, _, file = path.rpartition("/")
        if parent and folder.endswith(parent):
            siblings.add(file)
    if name in siblings:
        yield ok(f"module {module}")
    elif siblings:
        words = f"no package of the job has the module {module}"
        (nearest,) = get_close_matches(name, sorted(siblings), 1, 0)
        remedy = f"correct pythonModule, for example {parent[1:].replace('/', '.')}.{nearest}"
        # A dependency may add modules to a package without __init__.py, and so may a build.
        is_whole = any(file.endswith(f"{parent}/__init__.py") for file in files)
        is_compiled = any(file.endswith(_COMPILED_SOURCES) for file in files)
        report = problem if is_whole and not is_compiled else limit
        yield report(words, remedy)


def _module_path(file: str) -> str:
    """Return `/…/trainer/task` for `/…/trainer/task.py`, and `/…/trainer` for its `__main__.py`.

    Empty: the file is not a module that can be run.
    """
    folder, _, name = file.rpartition("/")
    stem, _, suffix = name.partition(".")
    if stem == "__main__":
        return folder
    is_module = suffix == "py" or suffix.endswith("so")
    return f"{folder}/{stem}" if is_module and stem != "__init__" else ""


def _files_of(archive: bytes) -> set[str]:
    """Return the paths of all files, with a leading slash; none: pip cannot install the archive."""
    try:
        if zipfile.is_zipfile(io.BytesIO(archive)):
            with zipfile.ZipFile(io.BytesIO(archive)) as wheel:
                return {f"/{name}" for name in wheel.namelist()}
        with tarfile.open(fileobj=io.BytesIO(archive)) as source:
            return {f"/{name}" for name in source.getnames()}
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        tarfile.TarError,
        EOFError,
        OSError,
        zlib.error,
        lzma.LZMAError,
    ):
        return set()


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
