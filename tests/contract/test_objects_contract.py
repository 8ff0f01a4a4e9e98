"""One suite for Objects, on the adapter in memory and on Cloud Storage's emulator."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from google.auth.credentials import AnonymousCredentials
from google.cloud import storage

from shared.gcp import clients
from shared.gcp.storage_objects import StorageObjects
from shared.memory.objects import MemoryObjects
from shared.ports import Objects


@pytest.fixture(params=["memory", "storage"])
def objects(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Objects]:
    if request.param == "memory":
        yield MemoryObjects()
        return
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{request.getfixturevalue('storage_emulator')}")
    client = storage.Client(project="test", credentials=AnonymousCredentials())
    client.create_bucket("bucket", timeout=10) if client.lookup_bucket("bucket", timeout=10) is None else None
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
