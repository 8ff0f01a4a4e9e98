"""The dead letter: messages that could never be handled, kept for people.

A look at it takes the messages for a moment and gives them back: Pub/Sub has no other way to see them. What was put
there by a function has its reason; what Pub/Sub itself moved there after the last delivery says where it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from google.api_core import exceptions
from google.cloud import pubsub_v1
from google.pubsub_v1.types import PubsubMessage, ReceivedMessage

from shared.errors import PermanentError, TemporaryError
from shared.messaging import push, topics

TIMEOUT_S: Final = 20.0
BATCH: Final = 100
PULL_S: Final = 2.0
"""How long a pull may bring nothing before all is taken to be seen: Pub/Sub promises no single pull to be all."""
MOVED_FROM: Final = f"{push.MOVED}Subscription"
"""Source: Pub/Sub, "Dead-letter topics": attributes of a forwarded message; the subscription is named as its topic."""
MOVED_AT: Final = f"{push.MOVED}TopicPublishTime"
_OWN: Final = ("reason", "function", "message_id", "told_at", "subscription")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """`topic`: where it was first published; None where nothing says so. `told_at`: when. `attributes`: as it was."""

    id: str
    at: datetime
    topic: str | None
    told_at: datetime
    reason: str
    data: bytes
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Replayed:
    """`kept`: with the reason why."""

    done: tuple[DeadLetter, ...]
    kept: tuple[tuple[DeadLetter, str], ...]


class DeadLetterBox:
    def __init__(self, project: str) -> None:
        self._project = project
        self._subscriber = pubsub_v1.SubscriberClient()
        self._publisher = pubsub_v1.PublisherClient()
        self._path = self._subscriber.subscription_path(project, topics.DEAD_LETTER)

    def look(self) -> tuple[DeadLetter, ...]:
        """All of them, the oldest first. They stay."""
        with self._taken() as letters:
            return tuple(letters[ack_id] for ack_id in sorted(letters, key=lambda each: letters[each].at))

    def replay(self, desired: Sequence[str] | None, judged: Callable[[DeadLetter], bool]) -> Replayed:
        """Publishes them again where they came from, but for those that are `judged` already, and drops them here.

        None: all that say where. What `judged` refuses (PermanentError) is kept.
        """
        done, kept = [], []
        with self._taken() as letters:
            for ack_id, letter in _chosen(letters, desired):
                if letter.topic is None:
                    if desired is not None:
                        raise PermanentError(f"{letter.id} does not say which topic it was published to")
                    continue
                try:
                    if not judged(letter):
                        self._publish(letter.topic, letter)
                except PermanentError as error:
                    kept.append((letter, str(error)))
                    continue
                self._acknowledge([ack_id])
                del letters[ack_id]
                done.append(letter)
        return Replayed(tuple(done), tuple(kept))

    def drop(self, desired: Sequence[str] | None) -> tuple[DeadLetter, ...]:
        """For good. None: all of them."""
        with self._taken() as letters:
            chosen = _chosen(letters, desired)
            if chosen:
                self._acknowledge([ack_id for ack_id, _ in chosen])
            for ack_id, _ in chosen:
                del letters[ack_id]
        return tuple(letter for _, letter in chosen)

    @contextmanager
    def _taken(self) -> Iterator[dict[str, DeadLetter]]:
        """By the id that acknowledges them. What is still there at the end is given back."""
        letters: dict[str, DeadLetter] = {}
        seen: set[str] = set()
        try:
            while new := [each for each in self._pull() if each.message.message_id not in seen]:
                seen.update(each.message.message_id for each in new)
                letters.update({each.ack_id: _letter(each.message) for each in new})
            yield letters
        finally:
            if letters:
                with _translated():
                    self._subscriber.modify_ack_deadline(
                        subscription=self._path, ack_ids=list(letters), ack_deadline_seconds=0, timeout=TIMEOUT_S
                    )

    def _pull(self) -> Sequence[ReceivedMessage]:
        with _translated():
            try:
                answer = self._subscriber.pull(subscription=self._path, max_messages=BATCH, retry=None, timeout=PULL_S)
            except exceptions.DeadlineExceeded:
                return ()
        return tuple(answer.received_messages)

    def _publish(self, topic: str, letter: DeadLetter) -> None:
        path = self._publisher.topic_path(self._project, topic)
        with _translated():
            self._publisher.publish(path, letter.data, **letter.attributes).result(TIMEOUT_S)  # type: ignore[arg-type]

    def _acknowledge(self, ack_ids: list[str]) -> None:
        with _translated():
            self._subscriber.acknowledge(subscription=self._path, ack_ids=ack_ids, timeout=TIMEOUT_S)


def _letter(message: PubsubMessage) -> DeadLetter:
    said = dict(message.attributes)
    moved = said.get(MOVED_FROM)
    reason = said.get("reason") or (f"not acknowledged by {moved} in all its deliveries" if moved else "unknown")
    told_at = said.get(MOVED_AT if moved else "told_at")
    return DeadLetter(
        message.message_id,
        message.publish_time,
        moved or _topic(said),
        datetime.fromisoformat(told_at) if told_at else message.publish_time,
        reason,
        message.data,
        {name: value for name, value in said.items() if not _is_added(name)},
    )


def _topic(said: Mapping[str, str]) -> str | None:
    """Of what a function put there. A function may have two topics; another subscription than ours says nothing."""
    if said.get("subscription") == topics.SYSTEM_EVENTS:
        return topics.SYSTEM_EVENTS
    function = said.get("function")
    return f"trainmaster-{function.replace('_', '-')}" if function else None


def _chosen(letters: Mapping[str, DeadLetter], desired: Sequence[str] | None) -> list[tuple[str, DeadLetter]]:
    if desired is None:
        return list(letters.items())
    by_id = {letter.id: (ack_id, letter) for ack_id, letter in letters.items()}
    if missing := [one for one in desired if one not in by_id]:
        raise PermanentError(f"no dead letter {', '.join(missing)}: `trainmaster dead-letters list` shows them")
    return [by_id[one] for one in desired]


def _is_added(attribute: str) -> bool:
    return attribute in _OWN or attribute.startswith(push.MOVED)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except exceptions.NotFound as error:
        raise PermanentError(f"{error.message}: is Trainmaster installed in this project?") from None
    except (exceptions.ServerError, exceptions.RetryError, exceptions.DeadlineExceeded) as error:
        raise TemporaryError(f"the dead letter: {error}") from error
