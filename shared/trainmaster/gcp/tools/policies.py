"""Organization policies as the Organization Policy API shows them: what a constraint allows in a project."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Policy:
    """The effective policy of one constraint. Rules that depend on tags are ignored, because Trainmaster sets no tags
    on resources."""

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


def read_policy(answer: Json) -> Policy:
    """Read the response of `policies.getEffectivePolicy`."""
    rules = [rule for rule in answer.get("spec", {}).get("rules", ()) if not rule.get("condition")]
    if any(rule.get("allowAll") for rule in rules):
        return Policy()
    values = [rule.get("values", {}) for rule in rules]
    return Policy(
        is_enforced=any(bool(rule.get("enforce")) for rule in rules),
        denies_all=any(bool(rule.get("denyAll")) for rule in rules),
        allowed=frozenset(_plain(value) for item in values for value in item.get("allowedValues", ())),
        denied=frozenset(_plain(value) for item in values for value in item.get("deniedValues", ())),
    )


def _plain(value: str) -> str:
    """Return the value without the optional prefix `is:`."""
    return value.removeprefix("is:")
