"""The agent's own calls to Cloud Storage, on the emulator: the agent has no client library."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from trainmaster.agent.google_http.google_api import GoogleApi
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup.cloud_storage import StorageReader
from trainmaster.agent.setup.setup_errors import Retrier, SetupError
from trainmaster_emulators.process.loopback import call
from trainmaster_emulators.services.storage import create_bucket


class Bucket:
    def __init__(self, host: str) -> None:
        self.host, self.name = host, f"b-{uuid.uuid4().hex[:8]}"
        create_bucket(host, "p", self.name)
        google = GoogleApi(f"http://{host}", real="", metadata=MetadataServer("127.0.0.1:1"))
        silent = Console(os.open(os.devnull, os.O_WRONLY))
        self.objects = StorageReader(google, Retrier(silent, lambda _: None))

    def put(self, name: str, content: dict[str, Any]) -> None:
        path = f"/upload/storage/v1/b/{self.name}/o?uploadType=media&name={quote(name, safe='')}"
        call(self.host, "POST", path, content)


@pytest.fixture
def bucket(storage_emulator: str) -> Bucket:
    return Bucket(storage_emulator)


def test_folder_listing_is_recursive_and_stays_in_the_folder(bucket: Bucket) -> None:
    for name in ("d/3/a", "d/3/logs/train/ä b", "d/30/x", "d/3x", "other"):
        bucket.put(name, {})
    listed = [*bucket.objects.list_below(f"gs://{bucket.name}/d/3")]
    assert {item.uri for item in listed} == {
        f"gs://{bucket.name}/d/3/a",
        f"gs://{bucket.name}/d/3/logs/train/ä b",
    }
    assert {item.name for item in listed} == {"a", "ä b"}
    assert all(item.updated.startswith("20") for item in listed)
    assert {item.size for item in listed} == {2}
    assert [*bucket.objects.list_below(f"gs://{bucket.name}/nothing")] == []


def test_object_with_special_characters_in_its_name_is_downloaded(
    bucket: Bucket, tmp_path: Path
) -> None:
    bucket.put("logs/ä b", {"x": 1})
    bucket.objects.download(f"gs://{bucket.name}/logs/ä b", tmp_path / "new" / "file")
    assert (tmp_path / "new" / "file").read_bytes().startswith(b'{"x"')


@pytest.mark.parametrize("uri", ["gs://{}/nothing", "gs://{}", "/local"])
def test_missing_object_is_a_permanent_failure(bucket: Bucket, tmp_path: Path, uri: str) -> None:
    with pytest.raises(SetupError) as error:
        bucket.objects.download(uri.format(bucket.name), tmp_path / "file")
    assert error.value.failure.cause == "install"


def test_download_of_a_generation_never_returns_a_later_one(bucket: Bucket, tmp_path: Path) -> None:
    bucket.put("p.tar.gz", {"x": 1})
    stored = call(bucket.host, "GET", f"/storage/v1/b/{bucket.name}/o/p.tar.gz", None)
    uri, generation = f"gs://{bucket.name}/p.tar.gz", int(stored["generation"])
    bucket.objects.download(uri, tmp_path / "first", generation)
    assert (tmp_path / "first").read_bytes().startswith(b'{"x"')
    bucket.put("p.tar.gz", {"attack": 1})
    # The bucket has no object versioning.
    with pytest.raises(SetupError, match=f"generation {generation}"):
        bucket.objects.download(uri, tmp_path / "second", generation)
