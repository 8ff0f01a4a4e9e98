"""The files of the packages that a job names.

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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any, Final, cast

from trainmaster.program_files.source_files import FILE_BYTES_MAX

FILES_MAX: Final = 20_000
"""Files of the largest archive that is judged."""
HEADER_BYTES_MAX: Final = 16 << 10
"""Longest name or extended header of a tar archive. Linux has no longer paths than 4 KiB."""
HEADERS_BYTES_MAX: Final = 8 << 20
"""Most bytes of all headers of a tar archive. `tarfile` reads 8 MiB of them in about a second, and
keeps as much memory for their names.
"""
COMMON_VALUES_MAX: Final = 100
"""Values that extended headers may set for all members. `tarfile` copies them for each member."""
NAME_MAX: Final = 400
"""Characters of the longest path that is judged."""
_READ: Final = re.compile(
    r"\.py$|(^|/)(METADATA|PKG-INFO|requires\.txt|pyproject\.toml|setup\.cfg)$"
)
"""Files whose content is read: sources, and what names the requirements."""
_BUILD_FILES: Final = ("setup.py", "setup.cfg", "pyproject.toml", "PKG-INFO")
"""Any of them in its first folder makes a zip archive a source distribution."""
_INSTALLED_DATA: Final = re.compile(r"[^/]+\.data/(purelib|platlib)/")
"""Folder of a wheel that is installed where its other files are. Source: PEP 427."""
_DECOMPRESSORS: Final[Mapping[bytes, Callable[[IO[bytes]], Any]]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
}
"""First bytes of a compressed tar archive → what unpacks it."""
_BOUNDED_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Methods of zip archives that are unpacked piece by piece. With the others, a few KiB become
gigabytes in one step.
"""
_IS_ENCRYPTED: Final = 0x1
"""Bit in the flags of a zip archive's entry."""
_DAMAGE: Final = (
    zipfile.BadZipFile,
    NotImplementedError,
    IndexError,
    tarfile.TarError,
    EOFError,
    OSError,
    ValueError,
    zlib.error,
    lzma.LZMAError,
    RecursionError,
    MemoryError,
)
"""What reading a damaged archive raises. `zipfile` looks at the last character of an empty name,
`tarfile` calls itself for a header of a header, and an archive names the size of the dictionary
that its decompressor allocates.
"""


@dataclass(frozen=True, slots=True)
class Archive:
    """What is known of a package."""

    files: frozenset[str] = frozenset()
    """The paths of all files."""
    contents: Mapping[str, bytes] = field(default_factory=dict)
    """Path → content, of the sources and metadata that the limits allow to read."""
    top: str = ""
    """Folder of a source distribution that has all of its files, with `/` at the end, or empty."""
    is_source: bool = False
    """Whether `pip` builds the package before it installs it."""

    @property
    def bytes_read(self) -> int:
        return sum(map(len, self.contents.values()))

    def read(self, name: str) -> bytes:
        """Return the content of a file; nothing if it was not read."""
        return self.contents.get(name, b"")


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

    def content(self, member: tarfile.TarInfo) -> bytes:
        """Return the content of a file that is stored as it is."""
        self.seek(member.offset_data)
        if member.offset_data + member.size > self._limit:
            raise _TooLargeError
        return self._file.read(member.size)

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or position > self._limit:
            raise _TooLargeError
        return self._file.seek(position)

    def tell(self) -> int:
        return self._file.tell()


@dataclass(slots=True)
class _Reader:
    """Chooses the files whose content is kept."""

    bytes_left: int
    contents: dict[str, bytes] = field(default_factory=dict)

    def wants(self, name: str, size: int) -> bool:
        return bool(_READ.search(name)) and size <= min(FILE_BYTES_MAX, self.bytes_left)

    def keep(self, name: str, content: bytes) -> None:
        self.contents[name] = content
        self.bytes_left -= len(content)


def open_archive(archive: bytes, unpacked_max: int, contents_max: int) -> Archive | None:
    """Return the files of a package, with the content of the first `contents_max` bytes of sources
    and metadata.

    None: they are not known, because the archive is damaged, or has more than FILES_MAX files or,
    if it is a tar archive, more than `unpacked_max` bytes or unusual headers.
    """
    reader = _Reader(contents_max)
    try:
        is_zip = zipfile.is_zipfile(io.BytesIO(archive))
        members = (
            _zip_files(archive, reader) if is_zip else _tar_files(archive, unpacked_max, reader)
        )
        files = frozenset(name for name in members if len(name) <= NAME_MAX)
    except (_TooLargeError, *_DAMAGE):
        return None
    top = _only_folder(files)
    is_source = not is_zip or any(f"{top}{name}" in files for name in _BUILD_FILES)
    return Archive(files, reader.contents, top if is_source else "", is_source)


def installed_path(name: str, archive: Archive, root: str | None = None) -> str:
    """Return the path of a file below the folder in which its package is installed.

    `root`: folder of the sources, if it is not one of the usual two. Source: the src layout and the
    flat layout of "Package Discovery", setuptools documentation.
    """
    if root is not None and name.startswith(root):
        return name.removeprefix(root)
    if archive.is_source:
        return name.removeprefix(archive.top).removeprefix("src/")
    return _INSTALLED_DATA.sub("", name, count=1)


def _zip_files(archive: bytes, reader: _Reader) -> list[str]:
    with zipfile.ZipFile(io.BytesIO(archive)) as package:
        entries = package.infolist()
        if len(entries) > FILES_MAX:
            raise _TooLargeError
        for entry in entries:
            is_readable = (
                entry.compress_type in _BOUNDED_METHODS and not entry.flag_bits & _IS_ENCRYPTED
            )
            if is_readable and reader.wants(entry.filename, entry.file_size):
                with package.open(entry) as file:
                    reader.keep(entry.filename, file.read(entry.file_size))
    return [entry.filename for entry in entries if not entry.is_dir()]


def _tar_files(archive: bytes, unpacked_max: int, reader: _Reader) -> Iterable[str]:
    content = io.BytesIO(archive)
    openers = (opener for magic, opener in _DECOMPRESSORS.items() if archive.startswith(magic))
    opener = next(openers, None)
    file: IO[bytes] = opener(content) if opener else content
    limited = _Limited(file, unpacked_max)
    names: list[str] = []
    with tarfile.open(fileobj=cast("IO[bytes]", limited), mode="r:") as source:
        for number, member in enumerate(source, start=1):
            if number > FILES_MAX or len(source.pax_headers) > COMMON_VALUES_MAX:
                raise _TooLargeError
            source.members = []  # type: ignore[attr-defined]  # each copies the values for all
            if member.isdir():
                continue
            name = member.name.removeprefix("./")
            names.append(name)
            is_plain = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE)
            if is_plain and reader.wants(name, member.size):
                reader.keep(name, limited.content(member))
    return names


def _only_folder(files: frozenset[str]) -> str:
    """Return the folder that has all files, with `/` at the end; empty if there is none."""
    folders = {name.partition("/")[0] for name in files}
    return f"{folders.pop()}/" if len(folders) == 1 else ""
