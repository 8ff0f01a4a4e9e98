"""Uploads of packages, which a job names by their content."""

from __future__ import annotations

import hashlib

from trainmaster.core.model.package_uri import with_hash
from trainmaster.ports import Objects


def upload_package(uri: str, content: bytes, content_type: str, objects: Objects) -> str:
    """Upload the package unless the object exists, and return its URI with the content's hash.

    `uri`: an object whose name follows from the content. Users may create packages, but not replace
    them, so an existing object is left as it is. Whatever it contains, the job installs this
    content or none, because the agent compares the hash.
    """
    if objects.generation(uri) is None:
        objects.write(uri, content, content_type=content_type)
    return with_hash(uri, hashlib.sha256(content).hexdigest())
