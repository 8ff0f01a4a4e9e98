"""Sweeps while their requests wait for `provision`.

The sweep runs each minute. It publishes a request to `provision` for each job that needs one, and
last a *check*: a search for VMs without a job (orphans). Until the check has been delivered, older
requests wait before it, and the sweep publishes no other.
"""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest

from tests.support.jobs import WORKER_0, a_spec
from tests.support.world import World
from trainmaster.errors import TemporaryError
from trainmaster.flows import provision
from trainmaster.messaging import internal_requests, topics
from trainmaster.messaging.internal_requests import ProvisionRequest
from trainmaster.messaging.push import Message

MINUTE_S = 60


def sweep_later(world: World) -> list[Message]:
    """Sweep a minute later, and take the requests without delivering them."""
    world.wait(MINUTE_S)
    world.sweep()
    return [message for message in world.bus.drain() if message.topic == topics.PROVISION]


def is_check(message: Message) -> bool:
    """Return whether the request is the last one of a sweep, the search for orphans."""
    request = internal_requests.decode_provision(message.data)
    return isinstance(request, internal_requests.OrphanSearch)


def raise_temporary_error(*_: object) -> None:
    raise TemporaryError("503")


def deliver(world: World, message: Message) -> None:
    provision.on_message(message, world.deps, world.fleet_deps)


def test_job_whose_request_waits_gets_no_other(world: World) -> None:
    world.submit()
    world.bus.drain()
    first = sweep_later(world)
    assert [is_check(message) for message in first] == [False, True]
    for _ in range(15):
        assert [is_check(message) for message in sweep_later(world)] == [True]
    for message in first:
        deliver(world, message)
    world.bus.drain()
    assert len(sweep_later(world)) == 2


def test_jobs_with_similar_ids_are_not_requested_one_after_another(world: World) -> None:
    """Trials of one tuning job have such ids, and all of them change the tuning job."""
    names = [
        f"{study}_{number}" for study in ("study_a", "study_b", "study_c") for number in "12345"
    ]
    for name in names:
        world.submit({"jobId": name, **a_spec()}, source=name)
    world.bus.drain()
    requests = [internal_requests.decode_provision(sent.data) for sent in sweep_later(world)]
    requested = [request.job_id for request in requests if isinstance(request, ProvisionRequest)]
    assert sorted(requested) == names
    neighbours = sum(
        before.rpartition("_")[0] == after.rpartition("_")[0]
        for before, after in pairwise(requested)
    )
    assert neighbours < len(names) / 2, "sorted by id, all but two have such a neighbour"


def test_jobs_wait_until_the_last_request_is_delivered(world: World) -> None:
    world.submit()
    world.bus.drain()
    job, check = sweep_later(world)
    deliver(world, job)
    world.bus.drain()
    assert [is_check(message) for message in sweep_later(world)] == [True]
    deliver(world, check)
    world.bus.drain()
    assert len(sweep_later(world)) == 2


def test_requests_that_are_lost_are_published_again_two_minutes_later(world: World) -> None:
    world.submit()
    world.bus.drain()
    assert len(sweep_later(world)) == 2
    (check,) = sweep_later(world)
    deliver(world, check)
    world.bus.drain()
    assert len(sweep_later(world)) == 2


def test_deadline_is_recorded_while_requests_wait(running: World) -> None:
    assert sweep_later(running)
    running.wait(timedelta(days=30).total_seconds())
    # As if a sweep had just published requests: this one publishes none.
    running.store.note_sweep_requests(running.now)
    running.sweep()
    assert running.job.state.is_terminal


def test_check_that_fails_does_not_keep_sweeps_from_requesting(
    running: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google cannot list VMs: the jobs' own reconciliations may still help them."""
    running.kill(WORKER_0)
    running.bus.drain()
    *_, check = sweep_later(running)
    monkeypatch.setattr(running.fleet, "list_all", raise_temporary_error)
    with pytest.raises(TemporaryError):
        deliver(running, check)
    running.bus.drain()
    assert len(sweep_later(running)) == 2
