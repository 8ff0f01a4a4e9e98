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


def test_what_was_written_is_read_up_to_the_limit(objects: Objects, uri: str) -> None:
    objects.write(uri, b"abcdef", content_type="text/plain")
    assert objects.read(uri, max_bytes=100) == b"abcdef"
    assert objects.read(uri, max_bytes=3) == b"abc"


def test_an_empty_object_is_there(objects: Objects, uri: str) -> None:
    objects.write(uri, b"", content_type="text/plain")
    assert objects.read(uri, max_bytes=100) == b""


def test_what_is_not_there_is_none_and_deleting_it_is_no_error(objects: Objects, uri: str) -> None:
    assert objects.read(uri, max_bytes=100) is None
    objects.delete(uri)
    objects.write(uri, b"a", content_type="text/plain")
    objects.delete(uri)
    objects.delete(uri)
    assert objects.read(uri, max_bytes=100) is None


def test_another_generation_is_another_object(objects: Objects, uri: str) -> None:
    objects.write(uri, b"new", content_type="text/plain")
    assert objects.read(uri, generation=42_000_000, max_bytes=100) is None


@pytest.mark.parametrize("name", ["jobs/ä b%2F#?&.yaml", "jobs/a/b//c.yaml"])
def test_a_name_may_have_any_letters(objects: Objects, name: str) -> None:
    objects.write(f"gs://bucket/{name}", b"a", content_type="text/plain")
    assert objects.read(f"gs://bucket/{name}", max_bytes=10) == b"a"
    objects.delete(f"gs://bucket/{name}")
    assert objects.read(f"gs://bucket/{name}", max_bytes=10) is None
