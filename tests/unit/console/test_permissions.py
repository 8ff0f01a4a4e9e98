"""The actions that the console disables, by the permissions of the user's own credentials."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer

import pytest

from tests.support.serving import JsonHandler, serving
from trainmaster.console.actions import Action
from trainmaster.errors import PermanentError
from trainmaster.gcp import clients, own_permissions
from trainmaster.gcp.own_permissions import (
    PROJECTS,
    PUBSUB,
    STATE,
    missing_publish_permission,
    missing_state_permissions,
    query_permissions,
)
from trainmaster.gcp.rest_api import RestApi
from trainmaster.settings import settings
from trainmaster.wiring import console as wiring

Answer = Callable[[str, str, tuple[str, ...]], frozenset[str] | None]


def granting(*permissions: str) -> Answer:
    return lambda base, path, asked: frozenset(permissions) & frozenset(asked)


def test_missing_permissions_are_those_that_google_does_not_grant() -> None:
    assert missing_state_permissions("p", granting(*STATE)) == ()
    assert missing_state_permissions("p", granting(STATE[0])) == (STATE[1],)
    assert (
        missing_publish_permission("p", "trainmaster-submit", granting("pubsub.topics.publish"))
        == ()
    )
    assert missing_publish_permission("p", "trainmaster-submit", granting()) == (
        "pubsub.topics.publish on trainmaster-submit",
    )


def test_nothing_is_missing_without_an_answer() -> None:
    assert missing_state_permissions("p", lambda *_: None) == ()
    assert missing_publish_permission("p", "t", lambda *_: None) == ()


def test_project_and_topics_are_asked_at_their_own_apis() -> None:
    asked = []

    def test(base: str, path: str, permissions: tuple[str, ...]) -> frozenset[str]:
        asked.append((base, path))
        return frozenset(permissions)

    missing_state_permissions("my-project", test)
    missing_publish_permission("my-project", "trainmaster-submit", test)
    assert asked == [
        (PROJECTS, "/v1/projects/my-project"),
        (PUBSUB, "/v1/projects/my-project/topics/trainmaster-submit"),
    ]


class Api(JsonHandler):
    """Grants all permissions at paths below /granted, and none below /none.

    Other paths are not reachable.
    """

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status = 200 if self.path.startswith(("/granted", "/none")) else 403
        granted = body["permissions"] if self.path.startswith("/granted:testIam") else []
        self.answer(status, {"permissions": granted} if status == 200 else {"error": {"code": 403}})


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Api)) as address:
        # An emulator's address is sent no credentials.
        def emulator(google: str, *, endpoint: str, timeout_s: float) -> RestApi:
            assert endpoint == ""
            return RestApi("", google, timeout_s)

        monkeypatch.setattr(own_permissions, "RestApi", emulator)
        yield address


def test_answer_of_the_api_is_read_and_a_refusal_is_no_answer(api: str) -> None:
    assert query_permissions(api, "/granted", ["a", "b"]) == frozenset({"a", "b"})
    assert query_permissions(api, "/none", ["a"]) == frozenset()
    assert query_permissions(api, "/forbidden", ["a"]) is None
    assert query_permissions("http://127.0.0.1:9", "/granted", ["a"]) is None


def test_missing_credentials_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermanentError("credentials: none")

    monkeypatch.setattr(clients, "session", refuse)
    assert query_permissions(PROJECTS, "/v1/projects/p", ["a"]) is None


def test_each_action_names_the_permissions_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    settings.cache_clear()
    monkeypatch.setattr(
        wiring, "missing_state_permissions", lambda _: ("datastore.entities.update",)
    )
    monkeypatch.setattr(
        wiring,
        "missing_publish_permission",
        lambda _, topic: (f"pubsub.topics.publish on {topic}",),
    )
    wiring.denied_by_credentials.cache_clear()
    denied = wiring.denied_by_credentials()
    wiring.denied_by_credentials.cache_clear()
    settings.cache_clear()
    assert denied == {
        Action.CANCEL: (
            "You lack datastore.entities.update and pubsub.topics.publish on trainmaster-provision."
        ),
        Action.SUBMIT: "You lack pubsub.topics.publish on trainmaster-submit.",
        Action.LABELS: "You lack datastore.entities.update.",
        Action.DELETE: "You lack datastore.entities.update.",
        Action.RELEASE: (
            "You lack datastore.entities.update and pubsub.topics.publish on trainmaster-provision."
        ),
    }
