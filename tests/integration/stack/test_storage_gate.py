"""Cloud Storage's IAM on the local stack: what each account may do, and 403 for objects that are
missing.

A gate is a server before an emulator. It serves one account, a function or a VM, and passes only
calls that the account may make on Google Cloud: the emulators themselves check no permission.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud.storage import Client

from tests.support.serving import serving
from trainmaster_emulators.realism.call_access import INFRA
from trainmaster_emulators.realism.http_access import Api
from trainmaster_emulators.realism.storage_access import (
    CREATE,
    DELETE,
    GET,
    GET_BUCKET,
    LIST,
    Access,
    StorageAccess,
    required_access,
)
from trainmaster_emulators.services.http_gate import GateServer
from trainmaster_emulators.services.storage import create_bucket, create_object

BUCKET, STAGE = "gated", "gated-stage"


@pytest.fixture(scope="module")
def storage(storage_emulator: str) -> str:
    for bucket in (BUCKET, STAGE):
        create_bucket(storage_emulator, "my-project", bucket)
    for name in ("jobs/job.yaml", "packages/trainer.tar.gz", "model/weights"):
        create_object(storage_emulator, BUCKET, name, b"content")
    create_object(storage_emulator, STAGE, "agent/agent.zip", b"content")
    create_object(storage_emulator, STAGE, "submit.zip", b"content")
    return storage_emulator


def gate(account: str, storage: str) -> GateServer:
    return GateServer(0, account, INFRA, {Api.STORAGE: storage}, buckets=(BUCKET, STAGE))


@contextmanager
def client_of(account: str, storage: str) -> Iterator[Client]:
    """Yield Google's client of Cloud Storage, as it is for that account."""
    with serving(gate(account, storage)) as address:
        client = Client(
            project="my-project",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": address},
        )
        yield client
        client.close()


def test_worker_writes_its_job_directory_but_no_packages_and_reads_no_job_files(
    storage: str,
) -> None:
    with client_of("worker", storage) as client:
        bucket = client.bucket(BUCKET)
        bucket.blob("model/new").upload_from_string(b"new")
        assert bucket.blob("model/new").download_as_bytes() == b"new"
        assert bucket.blob("packages/trainer.tar.gz").download_as_bytes() == b"content"
        assert "model/new" in {blob.name for blob in client.list_blobs(BUCKET)}
        assert client.bucket(STAGE).blob("agent/agent.zip").download_as_bytes() == b"content"
        refused: tuple[Callable[[], object], ...] = (
            lambda: bucket.blob("packages/trainer.tar.gz").upload_from_string(b"other"),
            lambda: bucket.blob("jobs/own.yaml").upload_from_string(b"job"),
            lambda: bucket.blob("jobs/job.yaml").download_as_bytes(),
            lambda: bucket.blob("packages/trainer.tar.gz").delete(),
            lambda: client.bucket(STAGE).blob("submit.zip").download_as_bytes(),
        )
        for call_refused in refused:
            with pytest.raises(
                exceptions.Forbidden, match=r"worker does not have storage\.objects"
            ):
                call_refused()


def test_missing_object_is_404_for_a_caller_who_may_list_and_403_for_others(storage: str) -> None:
    with client_of("worker", storage) as client:
        with pytest.raises(exceptions.NotFound):
            client.bucket(BUCKET).blob("model/missing").reload()
        with pytest.raises(exceptions.Forbidden, match="or it may not exist"):
            client.bucket(STAGE).blob("agent/missing.zip").reload()
    with client_of("upload", storage) as client, pytest.raises(exceptions.NotFound):
        client.bucket(BUCKET).blob("jobs/job.yaml.error.json").delete()


def test_large_upload_in_parts_goes_through_the_gate(storage: str) -> None:
    with client_of("worker", storage) as client:
        blob = client.bucket(BUCKET).blob("model/large", chunk_size=256 * 1024)
        blob.upload_from_string(b"x" * 600_000)
        assert blob.size == 600_000
        with pytest.raises(exceptions.Forbidden):
            client.bucket(BUCKET).blob("jobs/large", chunk_size=256 * 1024).upload_from_string(
                b"x" * 600_000
            )


def test_web_page_is_refused_and_the_googleapis_proxy_is_served(storage: str) -> None:
    with serving(gate("worker", storage)) as address:
        objects = f"{address}/storage/v1/b/{BUCKET}/o"
        assert urlopen(objects, timeout=10).status == 200
        for refused in ({"Origin": "https://example.com"}, {"Host": "example.com"}):
            with pytest.raises(HTTPError, match="403"):
                urlopen(Request(objects, headers=refused), timeout=10)
        proxied = Request(objects, headers={"Host": "www.googleapis.com"})
        assert urlopen(proxied, timeout=10).status == 200


@pytest.mark.parametrize(
    ("method", "target", "body", "needed"),
    [
        ("GET", "/storage/v1/b/gated/o?prefix=a", b"", [Access(LIST, "gated")]),
        (
            "GET",
            "/download/storage/v1/b/gated/o/a%2Fb?alt=media",
            b"",
            [Access(GET, "gated", "a/b")],
        ),
        ("DELETE", "/storage/v1/b/gated/o/a%2Fb", b"", [Access(DELETE, "gated", "a/b")]),
        (
            "POST",
            "/upload/storage/v1/b/gated/o?uploadType=multipart",
            b'--x\r\n\r\n{"name": "a/\\u00e9"}\r\n--x',
            [Access(CREATE, "gated", "a/é")],
        ),
        (
            "POST",
            "/storage/v1/b/gated/o/a/rewriteTo/b/other/o/c%2Fd",
            b"",
            [Access(GET, "gated", "a"), Access(CREATE, "other", "c/d")],
        ),
        ("GET", "/storage/v1/b/gated", b"", [Access(GET_BUCKET, "gated")]),
    ],
)
def test_call_needs_the_documented_permissions(
    method: str, target: str, body: bytes, needed: list[Access]
) -> None:
    assert list(required_access(method, target, body)) == needed


@pytest.mark.parametrize(
    ("account", "may"), [("api", True), ("worker", True), ("console", False), ("sweep", False)]
)
def test_metadata_of_a_bucket_need_the_role_that_shows_them(account: str, may: bool) -> None:
    refused = StorageAccess(account, BUCKET, STAGE).first_missing(
        "GET", f"/storage/v1/b/{BUCKET}", b""
    )
    assert refused == (None if may else Access(GET_BUCKET, BUCKET))
