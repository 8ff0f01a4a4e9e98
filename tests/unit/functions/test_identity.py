"""Authentication of agents' events, through the functions' HTTP entry points, with tokens of the
emulator's issuer.

The agent of each VM sends an identity token of Google with its events. The token's audience names
the *incarnation*, the execution of the program, that the event is about.

The ledger has the events of a job and the decisions about them.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from google.auth import jwt

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1
from tests.unit.functions.senders import NOW, Sender
from trainmaster.agent.reporting.publisher import ATTRIBUTE_BYTES, split_token
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.vm_names import vm_name
from trainmaster.messaging.authenticate import read_token
from trainmaster_emulators.machines.vm_tokens import TokenIssuer


def test_event_with_the_replicas_own_token_is_handled(sender: Sender) -> None:
    assert sender.send(sender.token()) == 204
    assert (sender.state, sender.reasons()) == (ReplicaState.RUNNING, [])


@pytest.mark.parametrize(
    ("function", "fields"),
    [
        ("vm_ready", {}),
        ("replica_exit", {"cause": "setup", "exit_status": 1}),
        ("maintenance", {"cause": "preemption"}),
    ],
)
def test_time_of_an_event_is_at_most_that_of_its_publication(
    sender: Sender, function: str, fields: dict[str, Any]
) -> None:
    sender.name = function
    assert (
        sender.send(sender.token(), at=(NOW + timedelta(minutes=10)).isoformat(), **fields) == 204
    )
    assert sender.world.ledger[-1].event.kind != "provisioning_started"
    assert sender.world.ledger[-1].event.at == NOW


def test_token_longer_than_one_attribute_is_split_and_read_back(sender: Sender) -> None:
    token = sender.token()
    sent = split_token(token)
    assert len(token) > ATTRIBUTE_BYTES
    assert max(len(value.encode()) for value in sent.values()) <= ATTRIBUTE_BYTES
    assert read_token(sent) == token
    assert split_token("") == {}


def test_token_in_one_attribute_is_read(sender: Sender) -> None:
    assert read_token({"identity": sender.token(), "other": "x"}) == sender.token()


FORGERIES: list[tuple[str, Callable[[Sender], str | None], str]] = [
    ("absent", lambda _: None, "carries no token"),
    ("not a token", lambda _: "eyJhbGciOiJub25lIn0.e30.", "not signed by Google"),
    (
        "signed with other keys",
        lambda sender: sender.token(issuer=TokenIssuer()),
        "not signed by Google",
    ),
    ("expired", lambda sender: sender.token(at=NOW - timedelta(hours=2)), "was valid until"),
    ("not yet valid", lambda sender: sender.token(at=NOW + timedelta(hours=2)), "was valid until"),
    (
        "of another VM",
        lambda sender: sender.token(instance_name=vm_name("digits_1", WORKER_1)),
        "the token belongs to VM",
    ),
    (
        "of another VM of that name",
        lambda sender: sender.token(instance_id=4711),
        "the token belongs to VM",
    ),
    (
        "of a VM in another zone",
        lambda sender: sender.token(zone="us-central1-f"),
        "the token belongs to VM",
    ),
    (
        "of another project",
        lambda sender: sender.token(project="your-project"),
        "the token belongs to VM",
    ),
    (
        "of another account",
        lambda sender: sender.token(email="x@my-project.iam.gserviceaccount.com"),
        "VMs run as",
    ),
    (
        "for another incarnation",
        lambda sender: sender.token(audience="trainmaster/my-project/digits_1/1/worker/0/2"),
        "the token is for",
    ),
    (
        "for another job",
        lambda sender: sender.token(audience="trainmaster/my-project/j/1/worker/0/1"),
        "the token is for",
    ),
    (
        "for another audience",
        lambda sender: sender.token(audience="https://example.com"),
        "the token is for",
    ),
]


@pytest.mark.parametrize(
    ("forgery", "token", "reason"), FORGERIES, ids=[forgery for forgery, _, _ in FORGERIES]
)
def test_event_with_a_forged_or_foreign_token_is_dead_lettered_and_changes_nothing(
    sender: Sender, forgery: str, token: Callable[[Sender], str | None], reason: str
) -> None:
    before = sender.world.ledger
    assert sender.send(token(sender)) == 204, forgery
    (dead_letter_reason,) = sender.reasons()
    assert dead_letter_reason.startswith("identity: ")
    assert reason in dead_letter_reason
    assert sender.world.ledger == before


DEEP = base64.urlsafe_b64encode(b"[" * 40_000).decode()


@pytest.mark.parametrize(
    "token", [f"{DEEP}.{DEEP}.{DEEP}", "secret" * 10, "a.b.secretsecret", f"{DEEP}.e30.e30"]
)
def test_text_that_is_no_token_is_dead_lettered_without_its_text(
    sender: Sender, token: str
) -> None:
    assert sender.send(token) == 204
    (reason,) = sender.reasons()
    assert "not signed by Google" in reason
    assert token[:20] not in reason
    assert "secretsecret" not in reason


def test_event_is_authenticated_before_all_of_it_is_decoded(sender: Sender) -> None:
    sender.name = "replica_exit"
    sender.send(None, cause="invented")
    assert sender.reasons() == ["identity: the event carries no token"]


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://accounts.example.com"},
        {"iss": "https://accounts.google.com.example.com"},
        {"email_verified": False},
        {"google": {}},
        {"exp": None},
    ],
    ids=str,
)
def test_signed_token_with_wrong_claims_is_dead_lettered(
    sender: Sender, changes: dict[str, object]
) -> None:
    claims = {**jwt.decode(sender.token(), verify=False), **changes}
    present = {name: value for name, value in claims.items() if value is not None}
    forged: bytes = jwt.encode(sender.issuer._signer, present)
    before = sender.world.ledger
    assert sender.send(forged.decode()) == 204
    (reason,) = sender.reasons()
    assert reason.startswith("identity: ")
    assert sender.world.ledger == before


def test_vm_of_the_replicas_name_cannot_act_for_a_replica_that_reported(sender: Sender) -> None:
    """A job in another zone could have VMs of the same names, if its id had the same hash."""
    sender.send(sender.token())
    before = sender.world.ledger
    vm = {**sender.world.message_fields(WORKER_0)["vm"], "instance_id": "4711"}  # type: ignore[dict-item]
    for name, cause in (("replica_exit", "process"), ("maintenance", "preemption")):
        sender.name = name
        sender.send(sender.token(instance_id=4711), vm=vm, cause=cause, signal=9)
        assert "but the replica runs on VM" in sender.reasons()[-1]
    assert sender.world.ledger == before


def test_vm_in_a_zone_that_the_job_does_not_use_is_refused(sender: Sender) -> None:
    vm = {**sender.world.message_fields(WORKER_0)["vm"], "zone": "europe-west4-a"}  # type: ignore[dict-item]
    sender.send(sender.token(zone="europe-west4-a"), vm=vm)
    assert "the token belongs to a VM in europe-west4-a" in sender.reasons()[0]
    assert sender.state is ReplicaState.WAITING


def test_token_of_a_past_incarnation_is_dead_lettered(sender: Sender) -> None:
    old = sender.token()
    sender.send(old)
    sender.world.report_all_ready()
    sender.name = "replica_exit"
    assert sender.send(sender.token(), cause="process", exit_status=1) == 204
    sender.world.deliver()
    assert sender.world.job.round.number == 2, "the programs start again, with other audiences"
    sender.send(old, cause="process", exit_status=1)
    assert "the token is for" in sender.reasons()[0]


def test_event_delivered_days_late_is_handled_if_published_in_time(sender: Sender) -> None:
    issued = NOW - timedelta(days=3)
    assert sender.send(sender.token(at=issued), published_at=issued + timedelta(minutes=50)) == 204
    assert sender.state is ReplicaState.RUNNING


def test_event_of_one_replica_leaves_the_others_unchanged(sender: Sender) -> None:
    sender.send(sender.token())
    assert sender.world.replica(CHIEF).state is ReplicaState.WAITING
