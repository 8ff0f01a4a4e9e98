"""One suite for Objects, on the adapter in memory and on Cloud Storage's emulator."""

from __future__ import annotations

import gzip
import logging
import tracemalloc
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from typing import Any

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from tests.support.captured_logs import CapturedLogs
from tests.support.serving import JsonHandler, serving
from trainmaster.gcp import clients
from trainmaster.gcp.storage_objects import StorageObjects
from trainmaster.ports import BucketForbiddenError, Objects
from trainmaster_local.memory.objects import MemoryObjects

MIB = 1024 * 1024


@pytest.fixture(params=["memory", "storage"])
def objects(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    if request.param == "memory":
        yield MemoryObjects()
        return
    monkeypatch.setenv(
        "STORAGE_EMULATOR_HOST", f"http://{request.getfixturevalue('storage_emulator')}"
    )
    client = storage.Client(project="test", credentials=AnonymousCredentials())
    if client.lookup_bucket("bucket", timeout=10) is None:
        client.create_bucket("bucket", timeout=10)
    client.close()
    made = StorageObjects(clients.storage_client())
    yield made
    made.close()


@pytest.fixture
def uri() -> str:
    return f"gs://bucket/jobs/{uuid.uuid4().hex}.yaml"


def test_object_is_read_up_to_the_byte_limit(objects: Objects, uri: str) -> None:
    objects.write(uri, b"abcdef", content_type="text/plain")
    assert objects.read(uri, max_bytes=100) == b"abcdef"
    assert objects.read(uri, max_bytes=3) == b"abc"


def test_empty_object_is_read_as_no_bytes(objects: Objects, uri: str) -> None:
    objects.write(uri, b"", content_type="text/plain")
    assert objects.read(uri, max_bytes=100) == b""


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (gzip.compress(b"state: ready"), b"state: ready"),
        (gzip.compress(bytes(200 * MIB)), bytes(MIB)),
        (b"not compressed", b"not compressed"),
    ],
    ids=["text", "bomb", "false label"],
)
def test_compressed_object_is_read_up_to_the_byte_limit(
    storage_emulator: str,
    monkeypatch: pytest.MonkeyPatch,
    uri: str,
    stored: bytes,
    expected: bytes,
) -> None:
    """As `gsutil cp -z` stores it."""
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{storage_emulator}")
    client = clients.storage_client()
    if client.lookup_bucket("bucket") is None:
        client.create_bucket("bucket")
    blob = client.bucket("bucket").blob(uri.removeprefix("gs://bucket/"))
    blob.content_encoding = "gzip"
    blob.upload_from_string(stored)
    objects = StorageObjects(client)
    tracemalloc.start()
    assert objects.read(uri, max_bytes=MIB) == expected
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    objects.close()
    assert peak < 20 * MIB


def test_missing_object_is_none_and_can_be_deleted(objects: Objects, uri: str) -> None:
    assert objects.read(uri, max_bytes=100) is None
    objects.delete(uri)
    objects.write(uri, b"a", content_type="text/plain")
    objects.delete(uri)
    objects.delete(uri)
    assert objects.read(uri, max_bytes=100) is None


def test_object_of_another_generation_is_none(objects: Objects, uri: str) -> None:
    objects.write(uri, b"new", content_type="text/plain")
    assert objects.read(uri, generation=42_000_000, max_bytes=100) is None


@pytest.mark.parametrize("name", ["jobs/ä b%2F#?&.yaml", "jobs/a/b//c.yaml"])
def test_object_name_may_have_any_characters(objects: Objects, name: str) -> None:
    objects.write(f"gs://bucket/{name}", b"a", content_type="text/plain")
    assert objects.read(f"gs://bucket/{name}", max_bytes=10) == b"a"
    objects.delete(f"gs://bucket/{name}")
    assert objects.read(f"gs://bucket/{name}", max_bytes=10) is None


def test_generation_is_that_of_the_latest_write(objects: Objects, uri: str) -> None:
    assert objects.generation(uri) is None
    first = objects.write(uri, b"old", content_type="text/plain")
    second = objects.write(uri, b"new", content_type="text/plain")
    assert objects.generation(uri) == second > first
    assert objects.read(uri, generation=second, max_bytes=10) == b"new"


def test_generation_of_an_object_in_a_missing_bucket_is_none(objects: Objects) -> None:
    assert objects.generation(f"gs://missing-{uuid.uuid4().hex}/a.tar.gz") is None


class Forbidding(JsonHandler):
    """Cloud Storage for a caller without storage.objects.list: 403 for an object that does not
    exist.
    """

    def do_GET(self) -> None:
        self.do_DELETE()

    def do_DELETE(self) -> None:
        message = "storage.objects.delete denied on resource (or it may not exist)."
        self.answer(403, {"error": {"code": 403, "message": message}})


def test_forbidden_deletion_is_logged_and_raises_nothing(
    uri: str, monkeypatch: pytest.MonkeyPatch, caplog: CapturedLogs
) -> None:
    """Otherwise a job file that was submitted would be redelivered until it is a dead letter."""
    with (
        serving(ThreadingHTTPServer(("127.0.0.1", 0), Forbidding)) as endpoint,
        caplog.at_level(logging.WARNING),
    ):
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", endpoint)
        objects = StorageObjects(clients.storage_client())
        objects.delete(uri)
        objects.close()
    assert f"{uri} was not deleted" in caplog.text


def test_place_of_a_bucket_is_known_and_a_missing_bucket_has_none(objects: Objects) -> None:
    place = objects.bucket_place("bucket")
    assert place is not None
    assert place.serves("us-central1")
    if isinstance(objects, MemoryObjects):
        objects.missing_buckets.add("missing")
    assert objects.bucket_place("missing") is None


def test_forbidden_bucket_is_neither_present_nor_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Forbidding)) as endpoint:
        monkeypatch.setenv("STORAGE_EMULATOR_HOST", endpoint)
        objects = StorageObjects(clients.storage_client())
        with pytest.raises(BucketForbiddenError):
            objects.bucket_place("bucket")
        objects.close()


def test_created_objects_are_those_below_the_directory_with_their_times(
    objects: Any, uri: str
) -> None:
    before = datetime.now(UTC) - timedelta(seconds=5)
    directory = uri.removesuffix(".yaml")
    for name in ("b/2", "a", "c"):
        objects.write(f"{directory}/{name}", b"abc", content_type="text/plain")
    objects.write(f"{directory}-other/a", b"x", content_type="text/plain")
    found = objects.created(directory, 10)
    prefix = directory.removeprefix("gs://bucket/")
    assert [created.name for created in found] == [f"{prefix}/a", f"{prefix}/b/2", f"{prefix}/c"]
    assert all(
        before <= created.created_at <= datetime.now(UTC) + timedelta(seconds=5)
        for created in found
    )
    assert {created.size for created in found} == {3}
    assert found[0].created_at.tzinfo is not None


def test_created_objects_are_bounded(objects: Any, uri: str) -> None:
    directory = uri.removesuffix(".yaml")
    for number in range(5):
        objects.write(f"{directory}/{number}", b"", content_type="text/plain")
    assert len(objects.created(directory, 3)) == 3
    assert objects.created(f"{directory}/missing", 3) == ()


def test_rewritten_object_has_the_time_of_its_last_version(objects: Any, uri: str) -> None:
    directory = uri.removesuffix(".yaml")
    objects.write(f"{directory}/ckpt", b"1", content_type="text/plain")
    (first,) = objects.created(directory, 3)
    objects.write(f"{directory}/ckpt", b"22", content_type="text/plain")
    (second,) = objects.created(directory, 3)
    assert second.created_at > first.created_at
    assert second.size == 2
