"""Python packages as a job names them."""

from __future__ import annotations

import io
import tarfile
import zipfile


def sdist(*files: str, form: str = "gz") -> bytes:
    """Return a source distribution with empty files. `form`: `gz`, `bz2`, `xz`, or empty."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=f"w:{form}") as archive:  # type: ignore[call-overload]
        for file in files:
            archive.addfile(tarfile.TarInfo(f"trainer-0.1/{file}"))
    return content.getvalue()


def wheel(*files: str) -> bytes:
    """Return a wheel with empty files."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for file in files:
            archive.writestr(file, "")
    return content.getvalue()
