"""Dead letters: messages that could not be handled, kept in a pull subscription until an operator
decides.

Pub/Sub shows messages only to a subscriber that pulls them. Every operation therefore pulls all
messages, and at its end returns those that stay to the subscription. A message comes here in one of
two ways:

    from a function     it raised PermanentError, whose text is the attribute `reason`
    from Pub/Sub        it was not acknowledged in all its deliveries; Pub/Sub's attributes name the
                        subscription
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from google.api_core import exceptions
from google.pubsub_v1.types import PubsubMessage, ReceivedMessage

from trainmaster.core.model.installation import name_in_installation
from trainmaster.errors import PermanentError
from trainmaster.gcp import clients
from trainmaster.gcp.errors import google_errors, translate
from trainmaster.gcp.pubsub_bus import PubsubBus
from trainmaster.gcp.retries import CALL
from trainmaster.messaging import push, topics

BATCH: Final = 10
"""Letters in one response.

A letter of a function has at most 1 MiB, and one that Pub/Sub moved has 10 MB.
"""
PULL_S: Final = 5.0
"""If a pull returns nothing for this long, all messages have been pulled, as far as we can know: a
response that takes longer looks like none. At 16 Mbit/s, a response of 10 MB takes 5 s.
"""
MOVED_FROM: Final = f"{push.DEAD_LETTER_PREFIX}Subscription"
"""Source: Pub/Sub, "Dead-letter topics": attributes of a forwarded message.

Our subscriptions have the names of their topics.
"""
MOVED_AT: Final = f"{push.DEAD_LETTER_PREFIX}TopicPublishTime"


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A message in the dead letter subscription."""

    id: str
    """Message id, by which the command line names the letter."""
    at: datetime
    """When the message became a dead letter."""
    topic: str | None
    """Topic that the message was first published to. None: unknown."""
    published_at: datetime
    """When the message was first published."""
    reason: str
    """Why the message could not be handled."""
    data: bytes
    """Data of the original message."""
    attributes: Mapping[str, str]
    """Attributes of the original message."""
    cut_from: str = ""
    """Size in bytes of the original data, if it was too large to be handled and was cut; else
    empty.
    """


class KeptLetter(NamedTuple):
    """A letter that stays in the subscription after a replay."""

    letter: DeadLetter
    reason: str
    """Why it could not be replayed."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """Result of a replay."""

    done: tuple[DeadLetter, ...]
    """Letters that were published again, or handled, and are dropped."""
    kept: tuple[KeptLetter, ...]


class DeadLetterBox:
    """The dead letters of a project. Methods raise TemporaryError or PermanentError."""

    def __init__(self, project: str) -> None:
        self._subscriber = clients.subscriber()
        self._bus = PubsubBus(clients.publisher(), project)
        self._path = self._subscriber.subscription_path(
            project, name_in_installation(topics.DEAD_LETTER)
        )

    def list_letters(self) -> tuple[DeadLetter, ...]:
        """Return all dead letters, the oldest first. They stay."""
        with self._pull_all() as letters:
            return tuple(sorted(letters.values(), key=lambda letter: letter.at))

    def replay(
        self, ids: Sequence[str] | None, is_handled: Callable[[DeadLetter], bool]
    ) -> ReplayResult:
        """Publish the letters to their topics again, and drop them here.

        `ids` None: all whose topic is known.

        `is_handled` is called with each letter first. If it returns True, the letter has been
        handled and is not published; if it raises PermanentError, the letter stays.
        """
        done: list[DeadLetter] = []
        kept: list[KeptLetter] = []
        with self._pull_all() as letters:
            for ack_id, letter in _choose(letters, ids):
                if letter.topic is None:
                    if ids is not None:
                        raise PermanentError(
                            f"dead letter {letter.id} does not say which topic it was published to"
                        )
                    continue
                if letter.cut_from:
                    reason = (
                        f"its {letter.cut_from} bytes were cut, because no function handles so many"
                    )
                    kept.append(KeptLetter(letter, reason))
                    continue
                try:
                    if not is_handled(letter):
                        self._bus.publish(letter.topic, letter.data, letter.attributes)
                except PermanentError as error:
                    kept.append(KeptLetter(letter, str(error)))
                    continue
                self._acknowledge([ack_id])
                del letters[ack_id]
                done.append(letter)
        return ReplayResult(tuple(done), tuple(kept))

    def drop(self, ids: Sequence[str] | None) -> tuple[DeadLetter, ...]:
        """Delete the letters, and return them. `ids`: message ids; None: all.

        Raises PermanentError for an id that no letter has.
        """
        with self._pull_all() as letters:
            chosen = _choose(letters, ids)
            if chosen:
                self._acknowledge([ack_id for ack_id, _ in chosen])
            for ack_id, _ in chosen:
                del letters[ack_id]
        return tuple(letter for _, letter in chosen)

    @contextmanager
    def _pull_all(self) -> Iterator[dict[str, DeadLetter]]:
        """Pull all letters, and yield them by acknowledgement id.

        Those that the caller leaves in the dict are returned to the subscription.
        """
        letters: dict[str, DeadLetter] = {}
        seen_ids: set[str] = set()
        try:
            while True:
                pulled = self._pull()
                new = [item for item in pulled if item.message.message_id not in seen_ids]
                if not new:
                    break
                seen_ids.update(item.message.message_id for item in new)
                letters.update({item.ack_id: _letter(item.message) for item in new})
            yield letters
        finally:
            if letters:
                with _dead_letter_errors():
                    self._subscriber.modify_ack_deadline(
                        subscription=self._path,
                        ack_ids=list(letters),
                        ack_deadline_seconds=0,
                        **CALL,
                    )

    def _pull(self) -> Sequence[ReceivedMessage]:
        """Return the next messages; none if the subscription sent nothing for `PULL_S`."""
        with _dead_letter_errors():
            try:
                response = self._subscriber.pull(
                    subscription=self._path, max_messages=BATCH, retry=None, timeout=PULL_S
                )
            except exceptions.DeadlineExceeded:
                return ()
        return tuple(response.received_messages)

    def _acknowledge(self, ack_ids: list[str]) -> None:
        with _dead_letter_errors():
            self._subscriber.acknowledge(subscription=self._path, ack_ids=ack_ids, **CALL)


def _letter(message: PubsubMessage) -> DeadLetter:
    """Return the letter that a pulled message is. `cut` is the size before the function cut its
    data.
    """
    attributes = dict(message.attributes)
    moved_from = attributes.get(MOVED_FROM)
    if moved_from:
        topic: str | None = f"trainmaster-{moved_from.partition('-')[2]}"
        published_at = attributes.get(MOVED_AT)
        reason = f"not acknowledged by {moved_from} in all its deliveries"
        cut_from = ""
    else:
        topic = _topic(attributes)
        published_at = attributes.get("published_at")
        reason = "unknown"
        cut_from = attributes.get("cut", "")
    return DeadLetter(
        id=message.message_id,
        at=message.publish_time,
        topic=topic,
        published_at=datetime.fromisoformat(published_at) if published_at else message.publish_time,
        reason=attributes.get("reason") or reason,
        data=message.data,
        cut_from=cut_from,
        attributes={name: value for name, value in attributes.items() if not _is_added(name)},
    )


def _is_added(attribute: str) -> bool:
    """Return whether the attribute was added when the message became a dead letter."""
    return attribute in push.ADDED or attribute.startswith(push.DEAD_LETTER_PREFIX)


def _topic(attributes: Mapping[str, str]) -> str | None:
    """Return the topic of a letter that a function published; None if it names no function.

    Only the function `maintenance` has a second topic.
    """
    if attributes.get("subscription") == name_in_installation(topics.SYSTEM_EVENTS):
        return topics.SYSTEM_EVENTS
    function = attributes.get("function")
    return f"trainmaster-{function.replace('_', '-')}" if function else None


def _choose(
    letters: Mapping[str, DeadLetter], ids: Sequence[str] | None
) -> list[tuple[str, DeadLetter]]:
    """Return acknowledgement id and letter of each message id.

    Raises PermanentError if there is no such letter.
    """
    if ids is None:
        return list(letters.items())
    by_id = {letter.id: (ack_id, letter) for ack_id, letter in letters.items()}
    missing = [letter_id for letter_id in ids if letter_id not in by_id]
    if missing:
        raise PermanentError(
            f"no dead letter {', '.join(missing)}: `trainmaster dead-letters list` shows them"
        )
    return [by_id[letter_id] for letter_id in ids]


@contextmanager
def _dead_letter_errors() -> Iterator[None]:
    """Raise our errors for Google's; a missing subscription is one of its own."""
    with google_errors("dead letters", _translate):
        yield


def _translate(error: exceptions.GoogleAPICallError) -> Exception | None:
    if isinstance(error, exceptions.NotFound):
        return PermanentError(f"{error.message}: is Trainmaster installed in this project?")
    return translate(error)
