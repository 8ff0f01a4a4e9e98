"""The event files of jobs on Cloud Storage's emulator, as `trainmaster tensorboard` lists, reads
and copies them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainmaster.cli.tensorboard.log_folders import LogFolder
from trainmaster.cli.tensorboard.mirror import Mirror
from trainmaster.errors import PermanentError
from trainmaster.gcp import clients
from trainmaster.gcp.storage_objects import StorageObjects
from trainmaster.gcp.tools.event_files import EventFiles
from trainmaster_emulators.services.storage import create_bucket

EVENTS = "events.out.tfevents.1.host"


BUCKET = f"event-files-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="module")
def address(storage_emulator: str) -> str:
    """Return `host:port` of an emulator with the bucket."""
    create_bucket(storage_emulator, "test", BUCKET)
    return storage_emulator


@pytest.fixture
def objects(address: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[StorageObjects]:
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", f"http://{address}")
    made = StorageObjects(clients.storage_client())
    yield made
    made.close()


@pytest.fixture
def files(objects: StorageObjects) -> EventFiles:
    return EventFiles(clients.storage_client())


@pytest.fixture
def folder() -> str:
    return f"gs://{BUCKET}/{uuid.uuid4().hex}/"


def put(objects: StorageObjects, uri: str, content: bytes) -> None:
    objects.write(uri, content, content_type="application/octet-stream")


def test_listed_file_has_its_size_and_is_read_from_any_byte(
    files: EventFiles, objects: StorageObjects, folder: str
) -> None:
    put(objects, f"{folder}train/{EVENTS}", b"abcdef")
    put(objects, f"{folder.rstrip('/')}-other/{EVENTS}", b"another job's")
    (file,) = files.list(folder)
    assert (file.uri, file.size) == (f"{folder}train/{EVENTS}", 6)
    assert (files.read(file, 0), files.read(file, 4)) == (b"abcdef", b"ef")


def test_empty_file_and_the_end_of_a_file_are_read_as_no_bytes(
    files: EventFiles, objects: StorageObjects, folder: str
) -> None:
    put(objects, f"{folder}{EVENTS}", content=b"")
    (file,) = files.list(folder)
    assert files.read(file, 0) == b""


def test_file_that_was_deleted_since_it_was_listed_is_none(
    files: EventFiles, objects: StorageObjects, folder: str
) -> None:
    put(objects, f"{folder}{EVENTS}", b"a")
    (file,) = files.list(folder)
    objects.delete(file.uri)
    assert files.read(file, 0) is None


def test_missing_bucket_is_named(files: EventFiles) -> None:
    with pytest.raises(PermanentError, match="there is no bucket no-such-bucket"):
        list(files.list("gs://no-such-bucket/runs/"))


def test_copy_follows_a_growing_file(
    files: EventFiles, objects: StorageObjects, folder: str, tmp_path: Path
) -> None:
    mirror = Mirror(tmp_path, files, (LogFolder("job", folder),))
    for content in (b"one", b"one two", b"one two three", b"other"):
        put(objects, f"{folder}train/{EVENTS}", content)
        assert mirror.update() == 1
        assert (tmp_path / "job" / "train" / EVENTS).read_bytes() == content
    assert mirror.update() == 0
