"""Resources of an installation as `trainmaster doctor` reads them from Google Cloud."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

NEW_OBJECT: Final = "OBJECT_FINALIZE"
"""Event type of a new object."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription's settings. Topics are short names, without their project."""

    topic: str
    endpoint: str
    """Where messages are pushed. Empty: it is a pull subscription."""
    ack_deadline_s: int
    """Seconds that a subscriber has to acknowledge a message."""
    has_retry_policy: bool
    dead_letter: str
    """Topic for messages that were delivered `attempts_max` times. Empty: there is none."""
    attempts_max: int
    """Deliveries after which a message goes to `dead_letter`."""
    expires: bool
    """Whether Pub/Sub deletes the subscription if it is not used."""


@dataclass(frozen=True, slots=True)
class Notification:
    """A bucket's notifications to a topic."""

    topic: str
    events: tuple[str, ...]
    """Event types, such as OBJECT_FINALIZE. Empty: all."""
    prefix: str
    """Beginning of the objects' names. Empty: all objects."""

    def covers(self, topic: str, folder: str) -> bool:
        """Whether every new object in the folder is published to the topic."""
        is_published = not self.events or NEW_OBJECT in self.events
        return self.topic == topic and folder.startswith(self.prefix) and is_published


@dataclass(frozen=True, slots=True)
class DeployedFunction:
    """A function as Cloud Functions shows it."""

    name: str
    state: str
    """ACTIVE, FAILED, DEPLOYING and others."""
    message: str
    """The first reason for a state other than ACTIVE; empty: there is none."""
    url: str


@dataclass(frozen=True, slots=True)
class Quota:
    """A quota of a region, or of the project."""

    metric: str
    used: float
    limit: float


@dataclass(frozen=True, slots=True)
class Policy:
    """The effective policy of one constraint.

    Rules that depend on tags are ignored, because Trainmaster sets no tags on resources.
    """

    is_enforced: bool = False
    """Whether a boolean constraint is enforced."""
    denies_all: bool = False
    allowed: frozenset[str] = frozenset()
    """Values that a list constraint allows. Empty: every value that is not denied."""
    denied: frozenset[str] = frozenset()

    def allows(self, *names: str) -> bool:
        """Whether the policy allows a value, which it may list under any of these names."""
        if self.denies_all or self.denied.intersection(names):
            return False
        return not self.allowed or bool(self.allowed.intersection(names))


def read_policy(answer: dict[str, Any]) -> Policy:
    """Read the response of `policies.getEffectivePolicy`."""
    rules = [rule for rule in answer.get("spec", {}).get("rules", ()) if not rule.get("condition")]
    if any(rule.get("allowAll") for rule in rules):
        return Policy()
    allowed: set[str] = set()
    denied: set[str] = set()
    for rule in rules:
        values = rule.get("values", {})
        allowed.update(map(_plain, values.get("allowedValues", ())))
        denied.update(map(_plain, values.get("deniedValues", ())))
    return Policy(
        is_enforced=any(rule.get("enforce") for rule in rules),
        denies_all=any(rule.get("denyAll") for rule in rules),
        allowed=frozenset(allowed),
        denied=frozenset(denied),
    )


def _plain(value: str) -> str:
    """Return the value without the optional prefix `is:`."""
    return value.removeprefix("is:")
