"""The built-in algorithms as one wheel, and its address in Cloud Storage.

`make stage` builds it, and infra/ stores it as `algorithms/SHA256/NAME.whl`. Jobs name it with its
hash, and the agent installs it only if its content has that hash. pip requires the file name of a
wheel. docs/decisions/vms-and-programs.md#decision-81.
"""

from __future__ import annotations

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

from trainmaster.packaging.archives import wheel, wheel_name

SOURCES: Final = Path(__file__).parents[1] / "algorithms"
WHEEL: Final = wheel_name("trainmaster_algorithms")
REQUIREMENTS: Final = ("google-cloud-storage", "numpy", "pandas==3.*")
"""Packages that all algorithms need besides those of their runtimes."""


@cache
def algorithms_archive() -> bytes:
    """Return the wheel. The same sources give the same bytes with the same zlib."""
    files = {
        f"algorithms/{path.relative_to(SOURCES).as_posix()}": path
        for path in sorted(SOURCES.rglob("*.py"))
    }
    return wheel("trainmaster_algorithms", files, REQUIREMENTS, ">=3.11")


def algorithms_object(archive: bytes) -> str:
    """Return the name of the object.

    It contains the hash of the content, so no object is ever replaced.
    """
    return f"algorithms/{hashlib.sha256(archive).hexdigest()}/{WHEEL}"
