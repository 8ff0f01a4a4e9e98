"""Objects on Cloud Storage."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Mapping
from typing import Any, Final

from google.api_core import exceptions
from google.cloud.storage import Blob, Client

from trainmaster.core.intake.bucket_places import BucketPlace
from trainmaster.gcp.errors import NO_CONNECTION, google_errors
from trainmaster.gcp.retries import CALL, CALL_S, retry_options
from trainmaster.ports import BucketForbiddenError, CreatedObject, ObjectForbiddenError

_CREATED_FIELDS = "items(name,timeCreated,size),nextPageToken"

_GZIP: Final = 16 + zlib.MAX_WBITS
"""Window size of zlib that stands for a header and a trailer of gzip."""

_log = logging.getLogger(__name__)


class StorageObjects:
    """Objects of Cloud Storage by their URI, `gs://bucket/name`. Thread-safe, as its client is.

    Adapter of `trainmaster.ports.Objects` and `trainmaster.ports.ObjectTimes`. All methods raise
    TemporaryError for transient errors.
    """

    def __init__(self, client: Client, deadline_s: float = CALL_S) -> None:
        self._client = client
        self._options = retry_options(deadline_s, *NO_CONNECTION)

    def read(self, uri: str, *, generation: int | None = None, max_bytes: int) -> bytes | None:
        """Return at most the first `max_bytes` of the object, or None if it does not exist."""
        blob = _blob(self._client, uri, generation)
        data = _read(blob, uri, start=0, end=max_bytes - 1, options=self._options)
        if data is None or blob.content_encoding != "gzip":
            return data
        return _decompressed(data, max_bytes)

    def generation(self, uri: str) -> int | None:
        """Return the number of the object's current version, or None if it does not exist.

        Raises ObjectForbiddenError.
        """
        blob = self._blob(uri)
        with google_errors(f"look up {uri}"):
            try:
                blob.reload(**self._options)
            except exceptions.NotFound:
                return None
            except exceptions.Forbidden:
                raise ObjectForbiddenError(uri) from None
        return int(blob.generation)

    def bucket_place(self, bucket: str) -> BucketPlace | None:
        """Return where the bucket keeps its objects, or None if there is no such bucket.

        Raises BucketForbiddenError.
        """
        with google_errors(f"look up gs://{bucket}"):
            try:
                bucket_resource = self._client.get_bucket(bucket, **self._options)
            except exceptions.NotFound:
                return None
            except exceptions.Forbidden:
                raise BucketForbiddenError(bucket) from None
        return BucketPlace(
            bucket_resource.location or "", tuple(bucket_resource.data_locations or ())
        )

    def write(self, uri: str, data: bytes, *, content_type: str) -> int:
        """Create or replace the object, and return its generation."""
        blob = self._blob(uri)
        with google_errors(f"write {uri}"):
            blob.upload_from_string(data, content_type=content_type, **self._options)
        return int(blob.generation)

    def delete(self, uri: str) -> None:
        """Delete the object if it exists."""
        with google_errors(f"delete {uri}"):
            try:
                self._blob(uri).delete(**self._options)
            except exceptions.NotFound:
                return
            except exceptions.Forbidden as error:
                # Cloud Storage also returns 403 for a missing object if the caller lacks
                # storage.objects.list.
                _log.warning("%s was not deleted: %s", uri, error)

    def created(self, directory: str, limit: int) -> tuple[CreatedObject, ...]:
        """Return the objects below `gs://bucket/directory`, at most `limit`, in the order of their
        names.
        """
        bucket, _, name = directory.removeprefix("gs://").partition("/")
        prefix = f"{name.rstrip('/')}/" if name else ""
        with google_errors(f"list {directory}"):
            try:
                blobs = self._client.list_blobs(
                    bucket,
                    prefix=prefix,
                    max_results=limit,
                    fields=_CREATED_FIELDS,
                    **self._options,
                )
                # The pages are read here, so the errors of all of them are caught.
                return tuple(
                    CreatedObject(blob.name, blob.time_created, blob.size or 0) for blob in blobs
                )
            except exceptions.NotFound:
                return ()
            except (exceptions.Forbidden, exceptions.Unauthorized):
                raise BucketForbiddenError(bucket) from None

    def close(self) -> None:
        self._client.close()

    def _blob(self, uri: str) -> Any:
        return _blob(self._client, uri, generation=None)


def read_part(client: Client, uri: str, generation: int | None, start: int) -> bytes | None:
    """Return the stored bytes from `start`; None if there is no such object or generation."""
    return _read(_blob(client, uri, generation), uri, start, end=None, options=CALL)


def _read(
    blob: Any, uri: str, start: int, end: int | None, options: Mapping[str, Any]
) -> bytes | None:
    """Return the stored bytes from `start` to `end`, both included; None: there is no such object.

    Sets the blob's content encoding.
    """
    with google_errors(f"read {uri}"):
        try:
            # Without `raw_download`, Cloud Storage decompresses an object that `gsutil cp -z`
            # stored, and sends all of it whatever the range, perhaps a thousand times larger than
            # it is stored. `checksum`: that of the whole object does not fit a part of it.
            part = blob.download_as_bytes(
                raw_download=True, start=start, end=end, checksum=None, **options
            )
        except exceptions.NotFound:
            return None
        except exceptions.RequestRangeNotSatisfiable:
            return b""  # an empty object has no first byte
    return bytes(part)


def _decompressed(data: bytes, max_bytes: int) -> bytes:
    """Return at most `max_bytes` of the decompressed data; the data as they are if not gzip."""
    try:
        return zlib.decompressobj(_GZIP).decompress(data, max_bytes)
    except zlib.error:
        return data


def _blob(client: Client, uri: str, generation: int | None) -> Any:
    bucket, _, name = uri.removeprefix("gs://").partition("/")
    return Blob(name, client.bucket(bucket), generation=generation)
