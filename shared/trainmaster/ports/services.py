"""Services behind one small interface each: messages, the time, a job's log, and suggestions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Protocol

from trainmaster.core.model.tuning import Tuning
from trainmaster.core.reporting.job_log import ServiceLine


class Bus(Protocol):
    """The topics of `trainmaster.messaging.topics`. Messages may be delivered more than once and in any order."""

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        """Publish one message, and return when it is stored.

        Raises TemporaryError if that is uncertain; the message may then still have been stored.
        """
        ...

    def publish_all(self, topic: str, messages: Sequence[bytes]) -> None:
        """Publish messages without attributes, in as few requests as possible. Errors are those of `publish`.

        After an error, some of the messages may have been stored.
        """
        ...


class Clock(Protocol):
    """A function that returns the current time, so that tests and the simulator can pass their own."""

    def __call__(self) -> datetime:
        """Return the current time as an aware datetime in UTC."""
        ...


class JobLog(Protocol):
    """The job's log, where its user reads it."""

    def write(self, lines: Sequence[ServiceLine]) -> None:
        """Write the lines. Idempotent: two lines with the same key and time are the same line.

        Raises TemporaryError for every failure, because a job never depends on its log.
        """
        ...


class Suggester(Protocol):
    """The search algorithm of a tuning job. Both methods are deterministic."""

    def suggest(self, tuning: Tuning, seed: str) -> tuple[str, ...]:
        """Return the values of the next trial: one per parameter, in the order of `tuning.parameters`.

        Every value is within the range or list of its parameter. The same tuning job and seed give the same values.
        In a finite search space no combination repeats, neither of a past trial nor of a running one.
        """
        ...

    def find_unpromising(self, tuning: Tuning) -> Mapping[int, str]:
        """Return the running trials to stop by the rule `tuning.stopping`: their numbers, each with the values that
        were compared, in words. Empty without such a rule.
        """
        ...
