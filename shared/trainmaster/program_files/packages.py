"""Whether a job of Python packages can run: its module, syntax, pins and imports.

packages ──► files as pip installs them ──► started module ──► what it imports
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from typing import Final

from trainmaster.program_files.archives import Archive, installed_path
from trainmaster.program_files.command import module_file
from trainmaster.program_files.findings import ProgramFiles, ProgramFinding, may_fail, must_fail
from trainmaster.program_files.package_metadata import requirements_of
from trainmaster.program_files.requirements import (
    RuntimePackages,
    check_imports,
    check_pins,
    is_standard,
)
from trainmaster.program_files.source_files import Entry, Sources

PLACE: Final = "the package's requirements"
"""Where packages name what they require."""
NEAREST_AMONG_MAX: Final = 1_000
"""Modules among which the nearest one is searched: for each, it takes up to a millisecond."""
NEAREST_CHARS_MAX: Final = 100
"""Longer names of modules are no slips of the pen."""
_MODULE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMPILED_SOURCES: Final = (".pyx", ".c", ".cc", ".cpp", ".cu", ".rs")
_OWN_BUILD: Final = b"cmdclass"
"""Argument of `setup()` with which a setup.py may generate or change modules."""


def check_packages(
    module: str, archives: Sequence[Archive], runtime: RuntimePackages, bytes_max: int
) -> Iterator[ProgramFinding]:
    """Yield why `python -m MODULE` cannot run after all packages of the job were installed.

    `bytes_max`: most bytes of source that are parsed, in all packages together.
    """
    yield from check_module(module, all_files(archives))
    for archive in archives:
        yield from _check_setup(archive, runtime, bytes_max)
    required = [requirements_of(archive) for archive in archives]
    known = [text for texts in required if texts is not None for text in texts]
    if runtime.requirements:  # a boot image of the user's own may have anything
        yield from check_pins(known, runtime, PLACE)
    program = _installed_program(module, archives, runtime)
    entry_file = module_file(module, program.names)
    if entry_file is None:
        return
    entry = Entry(entry_file, root="")
    sources = Sources(program, runtime.python, bytes_max)
    is_built = any(map(_may_change_sources, archives))
    for finding in sources.check_syntax(entry):
        yield replace(finding, must_fail=finding.must_fail and not is_built)
    if runtime.requirements and None not in required:
        yield from check_imports(sources, entry, program, known, runtime, PLACE)


def all_files(archives: Iterable[Archive]) -> frozenset[str]:
    """Return the paths in all packages, as `check_module` and `has_module` take them."""
    return frozenset(f"/{name}" for archive in archives for name in archive.files)


def _check_setup(
    archive: Archive, runtime: RuntimePackages, bytes_max: int
) -> Iterator[ProgramFinding]:
    """Yield an error of syntax in the package's setup.py, which pip runs to build it.

    Another build tool that pyproject.toml names may not run it.
    """
    setup = f"{archive.top}setup.py"
    if not archive.is_source or setup not in archive.files:
        return
    # Others read the messages: the submitter chooses the name of the folder.
    files = ProgramFiles(frozenset(("setup.py",)), lambda _: archive.read(setup))
    has_build_tool = f"{archive.top}pyproject.toml" in archive.files
    for finding in Sources(files, runtime.python, bytes_max).check_syntax(
        Entry("setup.py", root="")
    ):
        yield replace(finding, must_fail=finding.must_fail and not has_build_tool)


def _may_change_sources(archive: Archive) -> bool:
    """Return whether the build may make other modules of the package's sources."""
    return archive.is_source and _OWN_BUILD in archive.read(f"{archive.top}setup.py")


def _installed_program(
    module: str, archives: Sequence[Archive], runtime: RuntimePackages
) -> ProgramFiles:
    """Return the files of all packages, by their path in the folder in which pip installs them.

    A later package replaces the files of an earlier one. A file that would have the name of a
    module of Python's own library is left out: Python finds its own one first.
    """
    places: dict[str, tuple[Archive, str]] = {}
    for archive in archives:
        root = _unusual_root(module, archive)
        for name in archive.files:
            path = installed_path(name, archive, root)
            top = path.partition("/")[0].removesuffix(".py")
            if path != "setup.py" and not is_standard(top, runtime):
                places[path] = archive, name

    def read(path: str) -> bytes:
        archive, name = places[path]
        return archive.read(name)

    return ProgramFiles(frozenset(places), read)


def _unusual_root(module: str, archive: Archive) -> str | None:
    """Return the folder of the package's sources if setup.py names another one than the usual, and
    only one folder has the module.
    """
    path = module.replace(".", "/")
    found = [
        name.removesuffix(end)
        for end in (f"/{path}.py", f"/{path}/__main__.py")
        for name in archive.files
        if archive.is_source and name.endswith(end)
    ]
    usual = {archive.top, f"{archive.top}src/"}
    roots = {f"{root}/" for root in found}
    return roots.pop() if len(roots) == 1 and not roots & usual else None


def has_module(module: str, files: frozenset[str]) -> bool:
    """Return whether the files of all packages have a module that can be run."""
    _, siblings = _lookup(module, files)
    return module.rpartition(".")[2] in siblings


def check_module(module: str, files: frozenset[str]) -> Iterator[ProgramFinding]:
    """Yield why `python -m MODULE` does not find its module in the packages of the job.

    `files`: those of all packages. A module whose parent package is in none of them may be a
    dependency's, and is not judged.
    """
    parent, siblings = _lookup(module, files)
    name = module.rpartition(".")[2]
    runnable = set(filter(None, map(_module_path, files)))
    if name == "py" and any(path.endswith(parent) for path in runnable):
        yield must_fail(
            f"{module} is the name of a file, and no module",
            f"correct pythonModule: {module.removesuffix('.py')}",
        )
    elif siblings and name not in siblings:
        nearest = _nearest_module(name, siblings)
        remedy = "add it to one of them, or correct pythonModule"
        if nearest:
            remedy = f"correct pythonModule, for example {parent[1:].replace('/', '.')}.{nearest}"
        # A dependency may add modules to a package without __init__.py, and so may a build.
        is_whole = any(file.endswith(f"{parent}/__init__.py") for file in files)
        is_compiled = any(file.endswith(_COMPILED_SOURCES) for file in files)
        report = must_fail if is_whole and not is_compiled else may_fail
        yield report(f"no package of the job has the module {module}", remedy)


def _nearest_module(name: str, siblings: Iterable[str]) -> str | None:
    """Return the sibling whose name is most alike; None if none can be the name of a module.

    The names are those of files in a package, and other people read the result.
    """
    usual = (sibling for sibling in siblings if len(sibling) <= NEAREST_CHARS_MAX)
    modules = sorted(filter(_MODULE_NAME.fullmatch, usual))[:NEAREST_AMONG_MAX]
    if len(name) > NEAREST_CHARS_MAX:
        return None
    return next(iter(get_close_matches(name, modules, n=1, cutoff=0)), None)


def _lookup(module: str, files: frozenset[str]) -> tuple[str, set[str]]:
    """Return the folder of the module's parent package, `/trainer`, and the modules in it.

    Both are empty for a module without a package: any file could be meant.
    """
    parent = f"/{module.replace('.', '/')}".rpartition("/")[0]
    if not parent:
        return "", set()
    siblings = set()
    for path in filter(None, map(_module_path, files)):
        folder, _, name = path.rpartition("/")
        if folder.endswith(parent):
            siblings.add(name)
    if any(file.endswith(f"{parent}/__main__.py") for file in files):
        siblings.add("__main__")  # also runs by its own name
    return parent, siblings


def _module_path(file: str) -> str:
    """Return `/…/trainer/task` for `/…/trainer/task.py`, and `/…/trainer` for its `__main__.py`.

    Empty: the file is not a module that can be run.
    """
    folder, _, name = file.rpartition("/")
    stem, _, suffix = name.partition(".")
    if stem == "__main__":
        return folder
    is_module = suffix in ("py", "pyc") or suffix.endswith("so")
    return f"{folder}/{stem}" if is_module and stem != "__init__" else ""
