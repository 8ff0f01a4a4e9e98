"""Python packages as a job names them."""

from __future__ import annotations

import io
import tarfile
import zipfile
from collections.abc import Mapping


def sdist(*files: str, form: str = "gz") -> bytes:
    """Return a source distribution with empty files. `form`: `gz`, `bz2`, `xz`, or empty."""
    return sdist_of(dict.fromkeys(files, b""), form)


def sdist_of(files: Mapping[str, bytes], form: str = "gz", top: str = "trainer-0.1/") -> bytes:
    """Return a source distribution. `top`: folder of all files."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=f"w:{form}") as archive:  # type: ignore[call-overload]
        for name, text in files.items():
            member = tarfile.TarInfo(f"{top}{name}")
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text))
    return content.getvalue()


def wheel(*files: str) -> bytes:
    """Return a wheel with empty files."""
    return wheel_of(dict.fromkeys(files, b""))


def wheel_of(files: Mapping[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    """Return a wheel, or another zip archive. `method`: how its files are compressed."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", method) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()
