"""A local copy of event files in Cloud Storage that is updated at intervals.

TensorBoard polls every file every few seconds. Directly on Cloud Storage that is a call per file
and poll. The copy takes one list call per thousand objects, and one read for each file that has
grown. Event files only grow, so only their new end is read; the checksum of the whole file proves
that the copy is correct.
"""

from __future__ import annotations

import base64
import errno
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

import google_crc32c

from trainmaster.cli.output import complain
from trainmaster.cli.tensorboard.log_folders import LogFolder
from trainmaster.errors import PermanentError

if TYPE_CHECKING:
    from trainmaster.gcp.tools.event_files import StoredFile

THREADS: Final = 8
"""Files that are read from Cloud Storage at the same time."""
EVENTS: Final = "tfevents"
"""Part of the name of every event file.

Source: tensorboard/backend/event_processing/io_wrapper.py.
"""
IMPOSSIBLE_NAMES: Final = (
    errno.EEXIST,
    errno.ENOTDIR,
    errno.EISDIR,
    errno.ENAMETOOLONG,
    errno.EINVAL,
    errno.EILSEQ,
)
"""Errors that a name causes: it is too long, or names a file and a folder.

Programs choose the names of objects.
"""
PLUGINS: Final = "/plugins/"
"""Folder of files that plugins read beside the event files, such as those of the profiler."""


class Storage(Protocol):
    """The calls of `trainmaster.gcp.tools.event_files.EventFiles`.

    Both raise TemporaryError and PermanentError.
    """

    def list(self, folder: str) -> Iterable[StoredFile]:
        """Return all objects below `gs://BUCKET/FOLDER/`."""
        ...

    def read(self, file: StoredFile, start: int) -> bytes | None:
        """Return the content of this generation from byte `start`.

        None: it has been replaced or deleted.
        """
        ...


@dataclass(slots=True)
class _Copy:
    """The state of a local copy."""

    generation: int
    """Generation of the object in Cloud Storage that was copied."""
    size: int
    """In bytes."""
    crc: int
    """CRC32C of the whole file."""


@dataclass(slots=True)
class Mirror:
    """The copy of some folders in the directory `root`."""

    root: Path
    storage: Storage
    folders: tuple[LogFolder, ...]
    _copies: dict[str, _Copy] = field(default_factory=dict)
    _left_out: set[str] = field(default_factory=set)
    """Paths that this file system cannot have."""

    @property
    def files(self) -> int:
        """Number of files in the copy."""
        return len(self._copies)

    def update(self) -> int:
        """Copy what is new, and return how many files have changed.

        Safe to repeat after an error.
        """
        changed: list[Callable[[], bool]] = []
        for folder in self.folders:
            for stored in self.storage.list(folder.uri):
                path = _local_path(folder, stored)
                if path is None or path in self._left_out or self._is_current(path, stored):
                    continue
                changed.append(partial(self._copy_if_possible, path, stored))
        with ThreadPoolExecutor(THREADS) as pool:
            return sum(pool.map(lambda copy: copy(), changed))

    def _is_current(self, path: str, stored: StoredFile) -> bool:
        copy = self._copies.get(path)
        return copy is not None and copy.generation == stored.generation

    def _copy_if_possible(self, path: str, stored: StoredFile) -> bool:
        """Copy a file, or leave it out if its name is impossible here.

        Raises PermanentError if the disk fails.
        """
        try:
            return self._copy(path, stored)
        except OSError as error:
            if error.errno not in IMPOSSIBLE_NAMES:
                raise PermanentError(
                    f"{stored.uri} cannot be copied to {self.root}: {error.strerror}"
                ) from None
            self._left_out.add(path)
            complain(
                f"{stored.uri} is left out, because this machine cannot have a file of that name"
            )
            return False

    def _copy(self, path: str, stored: StoredFile) -> bool:
        """Append what is new, or copy the whole file if its beginning has changed.

        False: the object has been replaced, which the next update sees.
        """
        target = self.root / path
        copy = self._copies.get(path)
        if copy is not None and copy.size <= stored.size:
            end = self.storage.read(stored, copy.size) if copy.size < stored.size else b""
            if end is None:
                return False
            crc = google_crc32c.extend(copy.crc, end)
            if _matches(crc, stored):
                with target.open("ab") as file:
                    file.write(end)
                self._copies[path] = _Copy(stored.generation, stored.size, crc)
                return True
        whole = self.storage.read(stored, 0)
        if whole is None:
            return False
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = target.with_name(f".{target.name}.new")
        temporary.write_bytes(whole)
        temporary.replace(target)
        self._copies[path] = _Copy(stored.generation, len(whole), google_crc32c.value(whole))
        return True


def _local_path(folder: LogFolder, stored: StoredFile) -> str | None:
    path = stored.uri.removeprefix(folder.uri)
    if EVENTS not in path.rpartition("/")[2] and PLUGINS not in f"/{path}":
        return None
    return folder.local_path(path)


def _matches(crc: int, stored: StoredFile) -> bool:
    """Return whether the checksum is that of the object, which Cloud Storage has in base64."""
    return base64.b64encode(crc.to_bytes(4, "big")).decode() == stored.crc32c
