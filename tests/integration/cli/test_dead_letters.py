"""`trainmaster dead-letters` on Google's Pub/Sub emulator."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

import pytest
from typer.testing import CliRunner, Result

from trainmaster.cli.main import app
from trainmaster.errors import PermanentError
from trainmaster.gcp.tools import dead_letter_box
from trainmaster.messaging import topics
from trainmaster.settings import settings
from trainmaster_emulators.services.pubsub import PubSub

REASON = {"function": "submit", "reason": "no job digits_1", "message_id": "17", "keep": "me"}


@pytest.fixture
def pubsub(pubsub_emulator: str, monkeypatch: pytest.MonkeyPatch) -> PubSub:
    project = f"test-{uuid.uuid4().hex[:8]}"
    monkeypatch.setenv("TRAINMASTER_PROJECT", project)
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", pubsub_emulator)
    monkeypatch.setattr(dead_letter_box, "PULL_S", 2.0)
    settings.cache_clear()
    client = PubSub(pubsub_emulator, project)
    for topic in (topics.DEAD_LETTER, topics.SUBMIT):
        client.create_topic(topic)
        client.create_pull(topic, topic)
    return client


@pytest.fixture
def run(pubsub: PubSub) -> Callable[..., Result]:
    return lambda *arguments: CliRunner().invoke(app, ["dead-letters", *arguments])


def listed(run: Callable[..., Result]) -> list[dict[str, object]]:
    letters: list[dict[str, object]] = json.loads(run("list", "--format", "json").stdout)
    return letters


def test_list_and_show_keep_the_messages(pubsub: PubSub, run: Callable[..., Result]) -> None:
    for number in range(3):
        pubsub.publish(topics.DEAD_LETTER, json.dumps({"number": number}).encode(), **REASON)
    first = listed(run)
    assert [letter["data"] for letter in first] == [{"number": 0}, {"number": 1}, {"number": 2}]
    assert {(letter["topic"], letter["reason"]) for letter in first} == {
        (topics.SUBMIT, "no job digits_1")
    }
    assert listed(run) == first
    assert "no job digits_1" in run("list").stdout
    shown = json.loads(run("show", str(first[1]["id"])).stdout)
    assert shown["data"] == {"number": 1}


def test_replay_publishes_the_original_message_to_its_topic(
    pubsub: PubSub, run: Callable[..., Result]
) -> None:
    pubsub.publish(topics.DEAD_LETTER, b'{"a": 1}', **REASON)
    pubsub.publish(topics.DEAD_LETTER, b'{"b": 2}', **REASON)
    first = listed(run)[0]
    assert run("replay", str(first["id"])).exit_code == 0
    (message,) = pubsub.pull(topics.SUBMIT)
    assert (message["data"], message["attributes"]) == (b'{"a": 1}', {"keep": "me"})
    assert [letter["data"] for letter in listed(run)] == [{"b": 2}]


def test_replay_of_message_moved_by_pubsub_publishes_it_again(
    pubsub: PubSub, run: Callable[..., Result]
) -> None:
    moved = {"CloudPubSubDeadLetterSourceSubscription": topics.SUBMIT, "identity": "token"}
    pubsub.publish(topics.DEAD_LETTER, b"{}", **moved)
    assert "not acknowledged by trainmaster-submit" in run("list").stdout
    run("replay", "--all")
    (message,) = pubsub.pull(topics.SUBMIT)
    assert message["attributes"] == {"identity": "token"}
    assert listed(run) == []


def test_drop_deletes_messages(pubsub: PubSub, run: Callable[..., Result]) -> None:
    for _ in range(2):
        pubsub.publish(topics.DEAD_LETTER, b"not json", **REASON)
    assert listed(run)[0]["data"] == "not json"
    assert run("drop", "--all").stdout.count("dropped") == 2
    assert listed(run) == []
    nothing = run("drop", "--all")
    assert nothing.stdout == ""
    assert "No dead letters arrived" in nothing.stderr


def test_large_or_deep_letters_hide_no_other(pubsub: PubSub, run: Callable[..., Result]) -> None:
    for data in (b"x" * 5_000_000, b"[" * 5000, b"x"):
        pubsub.publish(topics.DEAD_LETTER, data, **REASON)
    assert [len(str(letter["data"])) for letter in listed(run)] == [5_000_000, 5000, 1]


def test_letter_whose_data_was_cut_is_not_replayed(
    pubsub: PubSub, run: Callable[..., Result]
) -> None:
    pubsub.publish(topics.DEAD_LETTER, b"{}", cut="1700000", **REASON)
    result = run("replay", "--all")
    assert "its 1700000 bytes were cut" in result.stdout
    assert (result.exit_code, len(listed(run)), pubsub.pull(topics.SUBMIT)) == (1, 1, [])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("replay",), "no messages selected"),
        (("drop", "1", "--all"), "no messages selected"),
        (("show", "4711"), "no dead letter has the id 4711"),
        (("replay", "4711"), "no dead letter 4711"),
    ],
)
def test_invalid_selection_is_an_error(
    run: Callable[..., Result], arguments: tuple[str, ...], message: str
) -> None:
    result = run(*arguments)
    assert isinstance(result.exception, PermanentError)
    assert message in str(result.exception)


def test_project_without_trainmaster_is_reported(
    pubsub_emulator: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_PROJECT", "empty-project")
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", pubsub_emulator)
    settings.cache_clear()
    result = CliRunner().invoke(app, ["dead-letters", "list"])
    assert isinstance(result.exception, PermanentError)
    assert "is Trainmaster installed" in str(result.exception)


def test_list_hides_identity_tokens(pubsub: PubSub, run: Callable[..., Result]) -> None:
    pubsub.publish(
        topics.DEAD_LETTER, b"{}", **REASON, **{"identity": "eyJhb", "identity-2": "GciOi"}
    )
    output = run("list", "--format", "json").stdout
    assert "eyJhb" not in output
    assert "GciOi" not in output
    assert output.count("(token hidden)") == 2
