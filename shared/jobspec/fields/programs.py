"""What replicas run: packages and a module, or a container. The parts that are checked alike in both APIs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

from shared.jobspec.reading.document_kinds import example_of
from shared.jobspec.reading.problems import Findings, Loc, given

PACKAGES_MAX: Final = 100
"""Source: both APIs' schemas, `packageUris`."""

_BUCKET: Final = r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]"
_GCS_OBJECT: Final = re.compile(rf"{_BUCKET}/[^\s*?\[\]#\\]+[^\s*?\[\]#\\/]|{_BUCKET}/[^\s*?\[\]#\\/]")
_GCS_DIRECTORY: Final = re.compile(rf"{_BUCKET}(/[^\s*?\[\]#\\]*)?")
_URI_CHARS_MAX: Final = 1_024 + 256
_ARCHIVES: Final = (".tar.gz", ".tgz", ".whl", ".zip", ".tar.bz2", ".tar.xz", ".tar")
_MODULE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")


def check_packages(packages: Sequence[str], at: Loc, found: Findings) -> None:
    if len(packages) > PACKAGES_MAX:
        found.add(at, f"has {len(packages)} packages, more than {PACKAGES_MAX}", example_of(at))
    first_with: dict[str, int] = {}
    for index, uri in enumerate(packages):
        file_name = PurePosixPath(uri).name
        if not _is_uri(uri, _GCS_OBJECT):
            rule = "must be an object in Cloud Storage (gs://bucket/path/file, without .. and wildcards)"
            found.add((*at, index), f"{rule}, not {given(uri)}", example_of((*at, index)))
        elif not file_name.endswith(_ARCHIVES):
            rule = f"must be a package that pip installs ({', '.join(_ARCHIVES)})"
            found.add((*at, index), f"{rule}, not {given(file_name)}", example_of((*at, index)))
        elif file_name in first_with:
            rule = f"has the same file name as packageUris[{first_with[file_name]}]: one would overwrite the other"
            found.add((*at, index), rule, re.sub(r"([^/]+)$", r"other-\1", uri))
        first_with.setdefault(file_name, index)


def check_module(module: str, at: Loc, found: Findings) -> None:
    if not _MODULE.fullmatch(module):
        rule = "must be a dotted module name for python -m"
        found.add(at, f"{rule}, not {given(module)}", _dotted(module) or example_of(at))


def check_directory(path: str, at: Loc, found: Findings) -> None:
    if not _is_uri(path, _GCS_DIRECTORY):
        rule = "must be a Cloud Storage path (gs://bucket/path, without .. and wildcards)"
        found.add(at, f"{rule}, not {given(path)}", example_of(at))


def require(value: object, at: Loc, found: Findings) -> None:
    """Of a field that must not be absent, in the sense of the wire: null, empty and zero are."""
    if not value:
        found.add(at, "is required", example_of(at))


def _is_uri(uri: str, pattern: re.Pattern[str]) -> bool:
    """Not only of the right form: no step of the path may lead out of it, on no file system it is copied to."""
    return (
        len(uri) <= _URI_CHARS_MAX
        and pattern.fullmatch(uri) is not None
        and uri.isprintable()
        and not any(step in (".", "..") for step in uri.split("/"))
    )


def _dotted(module: str) -> str | None:
    """`trainer/task.py` → `trainer.task`."""
    dotted = re.sub(r"\.py$", "", module).strip("./").replace("/", ".").replace("-", "_")
    return dotted if _MODULE.fullmatch(dotted) else None
