"""The secret of a tenure: tokens of a kept machine's present job name it in their audience. Those
of the machine's last job do not, and are refused.

Jobs, machine sets and their holders are explained in `tests.support.kept_jobs`.
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.support.kept_jobs import (
    a_keeping_job,
    other,
    run_job,
)
from tests.support.world import World
from trainmaster.core.events import IncarnationRef, VmRef
from trainmaster.gcp.firestore.documents import entry_document
from trainmaster.messaging.authenticate import AuthDeps, authenticate, expected_audience
from trainmaster.messaging.push import Message
from trainmaster.ports import Claims, IdentityError
from trainmaster.presentation.job_view import job_view


@pytest.fixture
def first() -> World:
    """Return a job that has ended, and whose machines are kept."""
    return a_keeping_job()


class OneToken:
    """Verifies every token as this one."""

    def __init__(self, claims: Claims) -> None:
        self._claims = claims

    def claims(self, token: str) -> Claims:
        del token
        return self._claims


def authenticated(world: World, key: str) -> bool:
    """Return whether a token with this secret in its audience counts for the job's primary."""
    vm = world.vms[0]
    subject = IncarnationRef(
        world.job_id,
        attempt=1,
        replica_id=vm.replica_id,
        incarnation=1,
        vm_generation=vm.vm_generation,
        vm=VmRef(vm.name, vm.zone, vm.instance_id),
    )
    audience = expected_audience("my-project", subject) + (f"/{key}" if key else "")
    claims = Claims(
        audience=audience,
        account="vms@p",
        project="my-project",
        zone=vm.zone,
        instance_name=vm.name,
        instance_id=vm.instance_id,
        issued_at=world.now,
        expires_at=world.now + timedelta(hours=1),
    )
    message = Message(
        data=b"", attributes={"identity": "token"}, message_id="", published_at=world.now
    )
    deps = AuthDeps(OneToken(claims), world.store, "my-project", "vms@p")
    try:
        authenticate(subject, message, deps)
    except IdentityError:
        return False
    return True


def test_token_from_before_the_take_is_refused(first: World) -> None:
    """A program of the last job had the same VM, and could predict the whole audience of the
    present job's tokens but for the secret.
    """
    second = other(first, "second")
    run_job(second)
    assert first.job.machines is not None
    assert second.job.machines is not None
    assert authenticated(second, second.job.machines.key)
    assert not authenticated(second, key="")
    assert not authenticated(second, first.job.machines.key)


def test_secret_of_the_tenure_is_in_no_event_and_no_message(first: World) -> None:
    assert first.job.machines is not None
    key = first.job.machines.key
    assert len(key) == 32  # 128 bits, in hexadecimal
    texts = [repr(first.job), str(first.ledger), str(job_view(first.job, project="p"))]
    texts += [str(entry_document(entry)) for entry in first.ledger]
    assert not any(key in text for text in texts)
