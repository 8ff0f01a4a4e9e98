"""Checks of Pub/Sub: topics with their push subscriptions, schemas, and the dead letter topic."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

from trainmaster.cli.doctor.findings import (
    CREATE_IT,
    REPAIR_IT,
    Finding,
    not_checked,
    ok,
    problem,
)
from trainmaster.core.model.installation import name_in_installation
from trainmaster.gcp.tools.dead_letter_box import DeadLetterBox
from trainmaster.gcp.tools.inspected_resources import Subscription
from trainmaster.gcp.tools.inspection import Inspection
from trainmaster.messaging import topics

ATTEMPTS_MIN: Final = 5
"""Source: the smallest number of delivery attempts that Pub/Sub accepts.

The installation may set a larger one.
"""
ACK_DEADLINE_MIN_S: Final = 60
"""The longest run time of a function (infra/functions.tf).

With a shorter deadline, Pub/Sub delivers the event again while the function is still handling it.
"""
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


def check_delivery(inspection: Inspection, topic: str) -> Iterator[Finding]:
    """Check that the topic exists, and that its subscription has the settings of infra/.

    `topic`: its name in this installation, as `name_in_installation` returns it.
    """
    if not inspection.has_topic(topic):
        yield problem(f"there is no topic {topic}", CREATE_IT)
        return
    subscription = inspection.subscription(topic)
    if subscription is None or subscription.topic != topic:
        yield problem(
            f"topic {topic} has no subscription {topic}: its messages are lost", CREATE_IT
        )
        return
    problems = list(_delivery_problems(subscription))
    for text in problems:
        yield problem(f"subscription {topic} {text}", REPAIR_IT)
    if not problems:
        yield ok(f"topic {topic} and its subscription")


def _delivery_problems(subscription: Subscription) -> Iterator[str]:
    """Yield what is wrong with a subscription, as predicates of it."""
    if not subscription.endpoint:
        yield "has no push endpoint"
    dead_letter = name_in_installation(topics.DEAD_LETTER)
    has_dead_letter = subscription.dead_letter == dead_letter
    if not has_dead_letter or subscription.attempts_max < ATTEMPTS_MIN:
        yield f"does not move messages to {dead_letter} after {ATTEMPTS_MIN} or more deliveries"
    if subscription.expires:
        yield "expires when it is not used"
    if subscription.ack_deadline_s < ACK_DEADLINE_MIN_S:
        yield (
            f"has an acknowledgement deadline of {subscription.ack_deadline_s} s, "
            f"but a function may take {ACK_DEADLINE_MIN_S} s"
        )


def check_retries(inspection: Inspection) -> Iterator[Finding]:
    """Check that Pub/Sub pauses before it delivers a failed event again."""
    if inspection.endpoints.is_local_stack:
        reason = "the local stack sets none, because the Pub/Sub emulator loses messages with one"
        yield not_checked("retry policies of the subscriptions", reason)
        return
    names = map(name_in_installation, EVENT_TOPICS)
    subscriptions = {topic: inspection.subscription(topic) for topic in names}
    without = [
        topic
        for topic, found in subscriptions.items()
        if found is not None and not found.has_retry_policy
    ]
    for topic in without:
        yield problem(f"subscription {topic} retries without backoff", REPAIR_IT)
    if not without:
        yield ok("retry policies of the subscriptions")


def check_notifications(inspection: Inspection) -> Iterator[Finding]:
    """Check that the topic of the job notifications exists.

    Its subscriptions belong to the users.
    """
    topic = name_in_installation(topics.JOB_STATE)
    if inspection.has_topic(topic):
        yield ok(f"topic {topic}")
    else:
        yield problem(f"there is no topic {topic}", CREATE_IT)


def check_schema(
    inspection: Inspection, topic: str, sample: Mapping[str, object]
) -> Iterator[Finding]:
    """Check that the topic's schema accepts the agents' events.

    Events that it rejects would be lost.
    """
    schema = inspection.schema(topic)
    if not schema:
        reason = "the topic has no schema (the function checks its messages in any case)"
        yield not_checked(f"schema of {topic}", reason)
        return
    rejection = inspection.schema_problem(schema, json.dumps(sample).encode())
    if rejection:
        yield problem(
            f"the schema of {topic} rejects the events of agents: {rejection}",
            "run `terraform apply` of this release, or set `schemas = false` in infra/ to work"
            " without schemas",
        )
    else:
        yield ok(f"schema of {topic}")


def check_dead_letter(inspection: Inspection) -> Iterator[Finding]:
    """Check that the dead letter topic keeps its messages, and that there are none."""
    topic = name_in_installation(topics.DEAD_LETTER)
    subscription = inspection.subscription(topic)
    if not inspection.has_topic(topic) or subscription is None or subscription.topic != topic:
        yield problem(
            f"there is no topic {topic} with a subscription: failed messages are lost", CREATE_IT
        )
        return
    if subscription.endpoint:
        yield problem(f"subscription {topic} has a push endpoint, but must be pulled", REPAIR_IT)
        return
    if subscription.expires:
        yield problem(f"subscription {topic} expires when it is not used", REPAIR_IT)
        return
    letters = DeadLetterBox(inspection.project).list_letters()
    if letters:
        yield problem(
            f"dead letters: {len(letters)}",
            "run `trainmaster dead-letters list`; see docs/runbooks.md#dead-letters",
        )
    else:
        yield ok("no dead letters")
