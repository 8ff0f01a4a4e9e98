"""The built-in algorithms as one wheel, and its address in Cloud Storage.

`make stage` builds it, and infra/ stores it as `algorithms/SHA256/NAME.whl`. Jobs name it with its hash, and the agent
installs it only if its content has that hash. pip requires the file name of a wheel. docs/decisions/0081.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from functools import cache
from pathlib import Path
from typing import Final

SOURCES: Final = Path(__file__).parents[1] / "algorithms"
VERSION: Final = "1.0"
WHEEL: Final = f"trainmaster_algorithms-{VERSION}-py3-none-any.whl"
REQUIREMENTS: Final = ("google-cloud-storage", "numpy", "pandas==3.*")
"""Packages that all algorithms need besides those of their runtimes."""
_INFO: Final = f"trainmaster_algorithms-{VERSION}.dist-info"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The earliest time that a zip file can store; it is the time of every entry."""


@cache
def algorithms_archive() -> bytes:
    """Return the wheel. The same sources give the same bytes with the same zlib."""
    files = {
        f"algorithms/{path.relative_to(SOURCES).as_posix()}": path.read_bytes()
        for path in sorted(SOURCES.rglob("*.py"))
    }
    files[f"{_INFO}/METADATA"] = _metadata()
    files[f"{_INFO}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: trainmaster\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{_INFO}/RECORD"] = _record(files)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED, compresslevel=9)
    return buffer.getvalue()


def algorithms_uri(bucket: str, archive: bytes) -> str:
    """Return the `gs://` URI under which the bucket holds this wheel."""
    return f"gs://{bucket}/{algorithms_object(archive)}"


def algorithms_object(archive: bytes) -> str:
    """Return the name of the object. It contains the hash of the content, so no object is ever replaced."""
    return f"algorithms/{hashlib.sha256(archive).hexdigest()}/{WHEEL}"


def _metadata() -> bytes:
    lines = ["Metadata-Version: 2.1", "Name: trainmaster-algorithms", f"Version: {VERSION}", "Requires-Python: >=3.11"]
    return "\n".join([*lines, *(f"Requires-Dist: {requirement}" for requirement in REQUIREMENTS), ""]).encode()


def _record(files: dict[str, bytes]) -> bytes:
    """Return the list of files with their hashes. Source: the binary distribution format, "The RECORD file"."""
    lines = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        lines.append(f"{name},sha256={digest},{len(content)}")
    return "\n".join([*lines, f"{_INFO}/RECORD,,", ""]).encode()
