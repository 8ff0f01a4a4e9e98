"""One suite for Resources, on the adapter in memory and on Google Cloud's with the local stack's
emulator.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import ThreadingHTTPServer

import pytest

from tests.support.memory_resources import MemoryResources
from tests.support.serving import JsonHandler, serving
from trainmaster.core.intake.registry_images import RegistryImage
from trainmaster.errors import TemporaryError
from trainmaster.gcp.resource_lookup import GoogleResources
from trainmaster.ports import Existence, Resources
from trainmaster_emulators.process.loopback import call
from trainmaster_emulators.services import iam

PROJECT = "my-project"
ACCOUNT = f"trainer@{PROJECT}.iam.gserviceaccount.com"
SECRET = f"projects/{PROJECT}/secrets/key/versions/1"
DIGEST = "sha256:" + "0" * 64
IMAGE = RegistryImage(PROJECT, "us", "training", "team/trainer", "1")


@dataclass
class Subject:
    resources: Resources
    create: Callable[[], None]
    """Creates the account, the secret with one version, and the image."""
    disable_secret: Callable[[], None]


def _in_memory() -> Subject:
    resources = MemoryResources()
    names = {ACCOUNT, SECRET, "key", IMAGE.resource}
    resources.missing |= names
    resources.digests[IMAGE.resource] = DIGEST
    resources.hidden.add("trainer@other-project.iam.gserviceaccount.com")
    return Subject(
        resources,
        lambda: resources.missing.difference_update(names),
        lambda: resources.missing.update({SECRET, "key"}),
    )


def _on_google_cloud(host: str) -> Subject:
    def create() -> None:
        call(host, "POST", f"/v1/projects/{PROJECT}/serviceAccounts", {"accountId": "trainer"})
        call(
            host,
            "POST",
            f"/v1/projects/{PROJECT}/secrets?secretId=key",
            {"replication": {"automatic": {}}},
        )
        data = base64.b64encode(b"value").decode()
        call(
            host,
            "POST",
            f"/v1/projects/{PROJECT}/secrets/key:addVersion",
            {"payload": {"data": data}},
        )
        tags = IMAGE.resource.rpartition("/")[0]
        call(host, "POST", f"/v1/{tags}?tagId=1", {"version": f"{tags}/versions/{DIGEST}"})

    def disable_secret() -> None:
        call(host, "POST", f"/v1/{SECRET}:disable", {})

    endpoint = f"http://{host}"
    return Subject(GoogleResources(PROJECT, endpoint, endpoint, endpoint), create, disable_secret)


@pytest.fixture(params=["memory", "google"])
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    if request.param == "memory":
        yield _in_memory()
        return
    with serving(iam.listen(0, PROJECT)) as endpoint:
        yield _on_google_cloud(endpoint.removeprefix("http://"))


def test_missing_resources_are_missing(subject: Subject) -> None:
    assert subject.resources.service_account(ACCOUNT) is Existence.MISSING
    assert subject.resources.secret_version(SECRET) is Existence.MISSING
    assert subject.resources.secret_version("key") is Existence.MISSING
    assert subject.resources.image(IMAGE) == (Existence.MISSING, "")


def test_created_resources_exist(subject: Subject) -> None:
    subject.create()
    assert subject.resources.service_account(ACCOUNT) is Existence.EXISTS
    assert subject.resources.secret_version(SECRET) is Existence.EXISTS
    assert subject.resources.secret_version("key") is Existence.EXISTS
    assert subject.resources.image(IMAGE) == (Existence.EXISTS, DIGEST)


def test_disabled_secret_version_is_missing(subject: Subject) -> None:
    subject.create()
    subject.disable_secret()
    assert subject.resources.secret_version(SECRET) is Existence.MISSING


def test_resource_of_another_project_is_unknown(subject: Subject) -> None:
    found = subject.resources.service_account("trainer@other-project.iam.gserviceaccount.com")
    assert found is Existence.UNKNOWN


class Unavailable(JsonHandler):
    def do_GET(self) -> None:
        self.answer(503, {})


def test_failure_of_google_is_neither_existence_nor_absence() -> None:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Unavailable)) as endpoint:
        resources = GoogleResources(PROJECT, endpoint, endpoint, endpoint)
        with pytest.raises(TemporaryError):
            resources.service_account(ACCOUNT)
