"""Replayed dead letters: their tokens are verified as of the time of publication."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

import pytest
from google.pubsub_v1.types import PubsubMessage

from tests.unit.functions.senders import NOW, Sender
from trainmaster.cli.dead_letter_replay import replay_agent_event
from trainmaster.core.model.replica import ReplicaState
from trainmaster.errors import PermanentError
from trainmaster.gcp.tools import dead_letter_box
from trainmaster.gcp.tools.dead_letter_box import DeadLetter
from trainmaster.messaging import agent_messages, push, topics
from trainmaster.ports import IdentityError


def test_dead_letter_is_replayed_as_of_its_publish_time(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first release cannot decode the event.

    By the time of the replay, its token has expired.
    """
    token = sender.token()
    with monkeypatch.context() as release:
        release.setattr(agent_messages, "decode_vm_ready", fail_to_decode)
        assert sender.send(token, at=(NOW + timedelta(minutes=10)).isoformat()) == 204
    (dead_letter,) = [
        message for message in sender.world.bus.drain() if message.topic == topics.DEAD_LETTER
    ]
    assert replay_agent_event(a_letter(dead_letter.attributes, dead_letter.data)) is True
    assert sender.state is ReplicaState.RUNNING
    assert sender.world.ledger[-1].event.at == NOW, "times are cut to the publication, too"


def test_dead_letter_with_forged_attributes_cannot_be_replayed(
    sender: Sender, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sender may add attributes that look like those of a dead letter.

    The function overwrites or drops them.
    """
    then = NOW - timedelta(hours=3)
    old = sender.token(at=then)
    forged = {
        "published_at": then.isoformat(),
        f"{push.DEAD_LETTER_PREFIX}Subscription": topics.VM_READY,
        f"{push.DEAD_LETTER_PREFIX}TopicPublishTime": then.isoformat(),
    }
    with monkeypatch.context() as release:
        release.setattr(agent_messages, "decode_vm_ready", fail_to_decode)
        assert sender.send(old, attributes=forged) == 204
    (dead_letter,) = [
        message for message in sender.world.bus.drain() if message.topic == topics.DEAD_LETTER
    ]
    with pytest.raises(IdentityError, match="was valid until"):
        replay_agent_event(a_letter(dead_letter.attributes, dead_letter.data))
    assert sender.state is not ReplicaState.RUNNING


def fail_to_decode(*_: object) -> None:
    raise PermanentError("AgentMessage: version: unknown")


def a_letter(attributes: Mapping[str, str], data: bytes) -> DeadLetter:
    """Read the dead letter as its subscription delivers it."""
    message = PubsubMessage(
        data=data, attributes=dict(attributes), message_id="1", publish_time=NOW
    )
    return dead_letter_box._letter(message)
