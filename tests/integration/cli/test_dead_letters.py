"""The dead letter by command line, on Google's Pub/Sub emulator."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from cli.main import app
from emulators.services.pubsub import PubSub
from shared.errors import PermanentError
from shared.messaging import topics
from shared.settings import settings

REASON = {"function": "submit", "reason": "no job digits_1", "message_id": "17", "keep": "me"}


@pytest.fixture
def pubsub(pubsub_emulator: str, monkeypatch: pytest.MonkeyPatch) -> PubSub:
    project = f"test-{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv("TRAINMASTER_PROJECT", project)
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", pubsub_emulator)
    settings.cache_clear()
    made = PubSub(pubsub_emulator, project)
    for topic in (topics.DEAD_LETTER, topics.SUBMIT):
        made.create_topic(topic)
        made.create_pull(topic, topic)
    return made


@pytest.fixture
def run(pubsub: PubSub) -> Callable[..., Result]:
    return lambda *arguments: CliRunner().invoke(app, ["dead-letters", *arguments])


def listed(run: Callable[..., Result]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(run("list", "--format", "json").stdout)
    return found


def test_looking_takes_nothing_away(pubsub: PubSub, run: Callable[..., Result]) -> None:
    for nth in range(3):
        pubsub.publish(topics.DEAD_LETTER, json.dumps({"nth": nth}).encode(), **REASON)
    first = listed(run)
    assert [each["data"] for each in first] == [{"nth": 0}, {"nth": 1}, {"nth": 2}]
    assert {(each["topic"], each["reason"]) for each in first} == {(topics.SUBMIT, "no job digits_1")}
    assert listed(run) == first
    assert "no job digits_1" in run("list").stdout
    shown = json.loads(run("show", str(first[1]["id"])).stdout)
    assert shown["data"] == {"nth": 1}


def test_a_replayed_message_is_where_it_came_from_as_it_was(pubsub: PubSub, run: Callable[..., Result]) -> None:
    pubsub.publish(topics.DEAD_LETTER, b'{"a": 1}', **REASON)
    pubsub.publish(topics.DEAD_LETTER, b'{"b": 2}', **REASON)
    first = listed(run)[0]
    assert run("replay", str(first["id"])).exit_code == 0
    (message,) = pubsub.pull(topics.SUBMIT)
    assert (message["data"], message["attributes"]) == (b'{"a": 1}', {"keep": "me"})
    assert [each["data"] for each in listed(run)] == [{"b": 2}]


def test_what_pubsub_moved_there_goes_back_to_its_own_topic(pubsub: PubSub, run: Callable[..., Result]) -> None:
    moved = {"CloudPubSubDeadLetterSourceSubscription": topics.SUBMIT, "identity": "token"}
    pubsub.publish(topics.DEAD_LETTER, b"{}", **moved)
    assert "not acknowledged by trainmaster-submit" in run("list").stdout
    run("replay", "--all")
    (message,) = pubsub.pull(topics.SUBMIT)
    assert message["attributes"] == {"identity": "token"}
    assert listed(run) == []


def test_dropping_is_for_good(pubsub: PubSub, run: Callable[..., Result]) -> None:
    for _ in range(2):
        pubsub.publish(topics.DEAD_LETTER, b"not json", **REASON)
    assert listed(run)[0]["data"] == "not json"
    assert run("drop", "--all").stdout.count("dropped") == 2
    assert listed(run) == []
    assert "nothing is there" in run("drop", "--all").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("replay",), "which ones"),
        (("drop", "1", "--all"), "which ones"),
        (("show", "4711"), "no dead letter 4711"),
        (("replay", "4711"), "no dead letter 4711"),
    ],
)
def test_what_is_not_meant_is_said(run: Callable[..., Result], arguments: tuple[str, ...], said: str) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, PermanentError)
    assert said in str(result.exception)


def test_a_project_without_trainmaster_says_so(pubsub_emulator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINMASTER_PROJECT", "empty-project")
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", pubsub_emulator)
    settings.cache_clear()
    result = CliRunner().invoke(app, ["dead-letters", "list"])
    assert isinstance(result.exception, PermanentError)
    assert "is Trainmaster installed" in str(result.exception)


def test_no_piece_of_a_token_is_shown(pubsub: PubSub, run: Callable[..., Result]) -> None:
    pubsub.publish(topics.DEAD_LETTER, b"{}", **REASON, **{"identity": "eyJhb", "identity-2": "GciOi"})
    out = run("list", "--format", "json").stdout
    assert "eyJhb" not in out
    assert "GciOi" not in out
    assert out.count("(of a token)") == 2
