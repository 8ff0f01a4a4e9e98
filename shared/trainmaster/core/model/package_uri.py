"""URIs of packages in a plan: `gs://BUCKET/NAME#GENERATION`, as gsutil writes a version of an
object.

A package that Trainmaster's own clients upload, and that of the built-in algorithms, is named by
its content instead: `gs://BUCKET/NAME#sha256=HASH`. The agent verifies the hash, so that a user who
may write the object cannot change what the job installs. The job format allows no `#` in the name
of a package, so that the forms are unambiguous.
"""

from __future__ import annotations

import re
from typing import Final

BUILT_IN: Final = "#built-in-algorithms"
"""Stands for the package of the built-in algorithms until the installation's own one is known."""
_HASH: Final = "#sha256="
_ALGORITHMS: Final = re.compile(r".*/algorithms/([0-9a-f]{64})/[^/#]+#sha256=\1")
"""Package of the built-in algorithms in the stage bucket of an installation."""


def with_hash(uri: str, sha256: str) -> str:
    return f"{uri}{_HASH}{sha256}"


def is_built_in(uri: str) -> bool:
    """Return whether the package belongs to the installation, and not to the job."""
    return uri == BUILT_IN or _ALGORITHMS.fullmatch(uri) is not None


def with_generation(uri: str, generation: int) -> str:
    return f"{uri}#{generation}"


def has_generation(uri: str) -> bool:
    """Return whether the URI names one version: a generation, or a hash."""
    return "#" in uri


def parse_version(uri: str) -> tuple[str, int | None]:
    """Return the URI of the object, and its generation; None: it names none, or a hash."""
    name, _, version = uri.partition("#")
    return name, int(version) if version.isdecimal() else None


def without_generation(uri: str) -> str:
    """Return the URI of the object without its version, as other programs expect it."""
    return uri.partition("#")[0]
