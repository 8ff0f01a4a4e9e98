"""The message for a bucket that the local stack does not have.

Most such buckets hold public data sets.
"""

from __future__ import annotations

import re
from typing import Final

XML_HOST: Final = "storage.googleapis.com"
JSON_API_BUCKET: Final = re.compile(r"^(?:/upload|/download|/resumable)?/storage/v1/b/([^/?]+)")


def find_bucket(host: str, path: str) -> str:
    """Return the bucket of a request; empty for requests without one."""
    match = JSON_API_BUCKET.match(path)
    if match:
        return match[1]
    if host.endswith(f".{XML_HOST}"):
        return host.removesuffix(f".{XML_HOST}")
    if host == XML_HOST:
        bucket_and_object, _, _ = path.lstrip("/").partition("?")
        return bucket_and_object.partition("/")[0]
    return ""


def missing_bucket_text(bucket: str) -> str:
    """Return a message in one line.

    It is also the reason phrase of the response, because urllib shows only that.
    """
    return (
        f"the local stack has no bucket {bucket}, and does not reach public data: fill it from a"
        f" folder with trainmaster local up --public-bucket {bucket}=DIR"
    )
