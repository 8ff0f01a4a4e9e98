"""Zip files and wheels that are the same for the same content and the same zlib."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can store; it is the time of every entry."""
_MODE: Final = 0o100755
"""Every file is executable: a user's scripts have to be, and for modules it makes no difference."""
VERSION: Final = "1.0"


def zip_archive(files: Mapping[str, bytes]) -> bytes:
    """Return the zip file, in the order of its names."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _EPOCH)
            entry.external_attr = _MODE << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED, compresslevel=9)
    return buffer.getvalue()


def wheel_name(name: str) -> str:
    """Return the file name that pip requires of a wheel."""
    return f"{name}-{VERSION}-py3-none-any.whl"


def wheel(
    name: str, paths: Mapping[str, Path], requirements: Iterable[str], python: str = ">=3.8"
) -> bytes:
    """Return a wheel of these files, by their names in it.

    Source: the binary distribution format; its RECORD lists files and hashes.
    """
    info = f"{name}-{VERSION}.dist-info"
    metadata = [
        "Metadata-Version: 2.1",
        f"Name: {name}",
        f"Version: {VERSION}",
        f"Requires-Python: {python}",
        *(f"Requires-Dist: {requirement}" for requirement in requirements),
        "",
    ]
    files = {entry: path.read_bytes() for entry, path in paths.items()}
    files[f"{info}/METADATA"] = "\n".join(metadata).encode()
    files[f"{info}/WHEEL"] = (
        b"Wheel-Version: 1.0\nGenerator: trainmaster\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    )
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for entry, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.writerow([entry, f"sha256={digest}", len(content)])
    rows.writerow([f"{info}/RECORD", "", ""])
    files[f"{info}/RECORD"] = record.getvalue().encode()
    return zip_archive(files)
