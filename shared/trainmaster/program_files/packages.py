"""The files of packages that a job names, and whether one of them has the job's module.

Nothing of a package is run or written to a disk. Packages are read in functions, too, and whoever
may submit a job chooses their bytes: everything that is unpacked has a limit.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import IO, Any, Final, cast

from trainmaster.program_files.findings import ProgramFinding, may_fail, must_fail

FILES_MAX: Final = 20_000
"""Files of the largest archive that is judged."""
HEADER_BYTES_MAX: Final = 16 << 10
"""Longest name or extended header of a tar archive. Linux has no longer paths than 4 KiB."""
HEADERS_BYTES_MAX: Final = 8 << 20
"""All headers of a tar archive. `tarfile` needs about a second for so many, and their names that
much memory.
"""
COMMON_VALUES_MAX: Final = 100
"""Values that extended headers may set for all members. `tarfile` copies them for each member."""
NEAREST_AMONG_MAX: Final = 1_000
"""Modules among which the nearest one is searched: for each, it takes up to a millisecond."""
NEAREST_CHARS_MAX: Final = 100
"""Longer names of modules are no slips of the pen."""
_MODULE_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_COMPILED_SOURCES: Final = (".pyx", ".c", ".cc", ".cpp", ".cu", ".rs")
_DECOMPRESSORS: Final[Mapping[bytes, Callable[[IO[bytes]], Any]]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
"""First bytes of a compressed tar archive → what unpacks it."""
_DAMAGE: Final = (
    zipfile.BadZipFile,
    NotImplementedError,
    tarfile.TarError,
    EOFError,
    OSError,
    ValueError,
    zlib.error,
    lzma.LZMAError,
    RecursionError,
    MemoryError,
)
"""What reading a damaged archive raises. `tarfile` calls itself for a header of a header, and an
archive names the size of the dictionary that its decompressor allocates.
"""


class _TooLargeError(Exception):
    """More would be unpacked than is allowed."""


class _Limited:
    """A file of which only the first `limit` bytes can be read.

    `tarfile` reads headers, and seeks over the content of members: the size of a read, and that of
    all reads together, are limited, too.
    """

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file = file
        self._limit = limit
        self._left = HEADERS_BYTES_MAX

    def read(self, size: int) -> bytes:
        self._left -= size
        is_long = size > HEADER_BYTES_MAX or self._left < 0
        if is_long or self._file.tell() + size > self._limit:
            raise _TooLargeError
        return self._file.read(size)

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or position > self._limit:
            raise _TooLargeError
        return self._file.seek(position)

    def tell(self) -> int:
        return self._file.tell()


def files_of(archive: bytes, unpacked_max: int) -> frozenset[str] | None:
    """Return the paths of all files, with a leading slash.

    None: they are not known, because the archive is damaged, or has more than FILES_MAX files or,
    if it is a tar archive, more than `unpacked_max` bytes or unusual headers.
    """
    try:
        is_zip = zipfile.is_zipfile(io.BytesIO(archive))
        names = _zip_names(archive) if is_zip else _tar_names(archive, unpacked_max)
        return frozenset(f"/{name}" for name in names)
    except (_TooLargeError, *_DAMAGE):
        return None


def _zip_names(archive: bytes) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(archive)) as wheel:
        names = wheel.namelist()
    if len(names) > FILES_MAX:
        raise _TooLargeError
    return names


def _tar_names(archive: bytes, unpacked_max: int) -> list[str]:
    content = io.BytesIO(archive)
    openers = (opener for magic, opener in _DECOMPRESSORS.items() if archive.startswith(magic))
    opener = next(openers, None)
    file: IO[bytes] = opener(content) if opener else content
    names: list[str] = []
    with tarfile.open(fileobj=cast("IO[bytes]", _Limited(file, unpacked_max)), mode="r:") as source:
        for member in source:
            names.append(member.name)
            if len(names) > FILES_MAX or len(source.pax_headers) > COMMON_VALUES_MAX:
                raise _TooLargeError
            source.members = []  # type: ignore[attr-defined]  # each copies the values for all
    return names


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
