"""How `trainmaster doctor` looks at topics: their delivery, the dead letter behind, and what agents may say there."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from cli.doctor.findings import APPLY, Finding, Status, fix
from shared.gcp.dead_letter_box import DeadLetterBox
from shared.gcp.inspection import Inspection, Subscription
from shared.messaging import topics

ATTEMPTS_MIN: Final = 5
"""Source: the fewest that Pub/Sub takes; the policy is what matters, the number is the installation's."""
ACK_DEADLINE_MIN_S: Final = 60
"""As long as a function may take (infra/functions.tf): sooner, the event is delivered again beside the first."""
EVENT_TOPICS: Final = (
    topics.UPLOAD,
    topics.SUBMIT,
    topics.VM_READY,
    topics.REPLICA_EXIT,
    topics.MAINTENANCE,
    topics.SYSTEM_EVENTS,
    topics.PROVISION,
    topics.SWEEP,
    topics.TUNE,
)


def delivery(seen: Inspection, topic: str) -> Iterator[Finding]:
    if not seen.has_topic(topic):
        yield fix(f"no topic {topic}", APPLY)
        return
    subscription = seen.subscription(topic)
    if subscription is None or subscription.topic != topic:
        yield fix(f"no subscription {topic} of the topic {topic}: what is published there is lost", APPLY)
        return
    wrong = list(_wrong_delivery(subscription))
    for what in wrong:
        yield fix(f"subscription {topic} {what}", "`terraform apply` in infra/ puts it right")
    if not wrong:
        yield Finding(Status.OK, f"topic {topic} and its delivery")


def schema(seen: Inspection, topic: str, said: Mapping[str, object]) -> Iterator[Finding]:
    """A schema that refused what agents say would leave the service deaf."""
    name = seen.schema(topic)
    if not name:
        yield Finding(Status.UNSEEN, f"schema of {topic}: there is none: its function alone checks what comes")
    elif why := seen.error_kind(name, json.dumps(said).encode()):
        what = f"the schema of {topic} refuses what agents say: {why}"
        yield fix(what, "`terraform apply` with this release, or with `schemas = false`, which does without")
    else:
        yield Finding(Status.OK, f"the schema of {topic}, which takes what agents say")


def _wrong_delivery(subscription: Subscription) -> Iterator[str]:
    if not subscription.endpoint:
        yield "pushes nowhere"
    if not subscription.has_retry_policy:
        yield "repeats without a pause"
    if subscription.dead_letter != topics.DEAD_LETTER or subscription.attempts_max < ATTEMPTS_MIN:
        yield f"does not give up into {topics.DEAD_LETTER} after {ATTEMPTS_MIN} or more deliveries"
    if subscription.expires:
        yield "expires when it is not used"
    if subscription.ack_deadline_s < ACK_DEADLINE_MIN_S:
        yield f"waits {subscription.ack_deadline_s} s for an answer, and a function may take {ACK_DEADLINE_MIN_S} s"


def dead_letter(seen: Inspection) -> Iterator[Finding]:
    subscription = seen.subscription(topics.DEAD_LETTER)
    if not seen.has_topic(topics.DEAD_LETTER) or subscription is None or subscription.topic != topics.DEAD_LETTER:
        yield fix(f"no topic {topics.DEAD_LETTER} with a subscription: what cannot be handled is lost", APPLY)
        return
    if subscription.endpoint or subscription.expires:
        what = "is pushed away" if subscription.endpoint else "expires when it is not used"
        yield fix(f"subscription {topics.DEAD_LETTER} {what}", "`terraform apply` in infra/ puts it right")
        return
    if letters := len(DeadLetterBox(seen.project).look()):
        yield fix(f"dead letters: {letters}", "docs/runbooks/dead-letters.md; `trainmaster dead-letters list`")
    else:
        yield Finding(Status.OK, "the dead letter, which is empty")
