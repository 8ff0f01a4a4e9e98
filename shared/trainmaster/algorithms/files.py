"""Whole files, local or in Cloud Storage, and folders of them.

`google-cloud-storage` follows STORAGE_EMULATOR_HOST. It is imported only for `gs://` paths.

The built-in algorithms read their data and write their results with these functions. Errors of the
disk and of Cloud Storage propagate, except for missing files where a docstring says so.
"""

from __future__ import annotations

import fnmatch
import re
from functools import cache
from pathlib import Path
from typing import Any, Final

from .errors import DataError

SCHEME: Final = "gs://"
_WILDCARD: Final = re.compile(r"[*?\[]")
"""A character that makes a path a pattern."""


def join(folder: str, *names: str) -> str:
    """Return the path of a file below a folder, local or in Cloud Storage."""
    return "/".join((folder.rstrip("/"), *names))


def find_files(pattern: str) -> list[str]:
    """Return the paths that a pattern or a plain path stands for, sorted.

    Raises DataError if there are none.

    `*` also matches slashes, as in the wildcard paths of AI Platform Training.
    """
    if not _WILDCARD.search(pattern):
        return [pattern]
    fixed = _WILDCARD.split(pattern)[0]
    if pattern.startswith(SCHEME):
        bucket, _, prefix = fixed.removeprefix(SCHEME).partition("/")
        paths = [
            f"{SCHEME}{bucket}/{blob.name}" for blob in _client().list_blobs(bucket, prefix=prefix)
        ]
    else:
        folder = Path(fixed).parent if not fixed.endswith("/") else Path(fixed)
        paths = [str(path) for path in folder.rglob("*") if path.is_file()]
    found = sorted(path for path in paths if fnmatch.fnmatchcase(path, pattern))
    if not found:
        raise DataError(f"no file matches {pattern}; upload the data first, or correct the path")
    return found


def read_file(path: str) -> bytes | None:
    """Return a file's content, or None if the file does not exist."""
    if path.startswith(SCHEME):
        from google.api_core.exceptions import NotFound

        try:
            content: bytes = _blob(path).download_as_bytes()
        except NotFound:
            return None
        return content
    return Path(path).read_bytes() if Path(path).is_file() else None


def write_file(path: str, content: bytes) -> None:
    """Write a file atomically: readers see the old or the new content, never a part.

    Folders are created.
    """
    if path.startswith(SCHEME):
        _blob(path).upload_from_string(content)
        return
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    scratch = target.with_name(f".{target.name}.part")
    scratch.write_bytes(content)
    scratch.replace(target)


def write_folder(local: Path, folder: str) -> None:
    """Copy all files below a local folder. Files of the same names are replaced."""
    for path in sorted(local.rglob("*")):
        if path.is_file():
            write_file(join(folder, path.relative_to(local).as_posix()), path.read_bytes())


def read_folder(folder: str, local: Path) -> bool:
    """Copy all files below a folder to a local one. Return whether there are any."""
    base = folder.rstrip("/") + "/"
    if folder.startswith(SCHEME):
        bucket, _, prefix = base.removeprefix(SCHEME).partition("/")
        names = [
            str(blob.name).removeprefix(prefix)
            for blob in _client().list_blobs(bucket, prefix=prefix)
        ]
    else:
        names = [
            path.relative_to(folder).as_posix()
            for path in Path(folder).rglob("*")
            if path.is_file()
        ]
    for name in names:
        content = read_file(base + name)
        if content is not None:  # a file may be deleted meanwhile
            write_file(str(local / name), content)
    return bool(names)


@cache
def _client() -> Any:
    from google.cloud import storage

    return storage.Client()


def _blob(path: str) -> Any:
    """Return the object at a `gs://BUCKET/OBJECT` path, whether or not it exists."""
    bucket, _, name = path.removeprefix(SCHEME).partition("/")
    return _client().bucket(bucket).blob(name)
