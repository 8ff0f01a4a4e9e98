"""URIs of packages in a plan: `gs://BUCKET/NAME#GENERATION`, as gsutil writes a version of an object.

The job format allows no `#` in the name of a package, so that the form is unambiguous.
"""

from __future__ import annotations


def with_generation(uri: str, generation: int) -> str:
    return f"{uri}#{generation}"


def has_generation(uri: str) -> bool:
    return "#" in uri


def without_generation(uri: str) -> str:
    """Return the URI of the object, which programs that know nothing of generations can open."""
    return uri.partition("#")[0]
