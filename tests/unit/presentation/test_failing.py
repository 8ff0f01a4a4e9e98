"""A job that keeps failing, as the API explains it and as the Python client reads that."""

from __future__ import annotations

from tests.support.failing_world import LAST, failing_world
from tests.support.jobs import START
from tests.support.world import World
from trainmaster.client.explanation import Explanation, explanation_of
from trainmaster.presentation.explanation import explanation


def explained(world: World) -> Explanation:
    loaded = world.store.load_attempt(world.job_id)
    assert loaded is not None
    return explanation_of(explanation(loaded.state, world.ledger, (), world.now))


def test_client_has_the_row_of_the_api() -> None:
    why = explained(failing_world(START, failures=3))
    assert why.failing is not None
    assert (why.failing.failures, why.failing.last_failure) == (3, LAST)
    # Three reruns make four attempts, each with one start and five restarts: 24 in all.
    assert why.failing.failures_left == 24 - 3
    assert why.failing.since > START
    (step,) = why.next_steps
    assert step.startswith(
        "Restart 3 of 5 after a pause of 2 s. The job is FAILED after at most 21"
    )
    now, failing, following = str(why).splitlines()[-3:]
    assert now == "Now: RUNNING."
    assert failing == f"Failing: 3 in a row, last {LAST}."
    assert following == f"Next: {step}"


def test_one_failure_is_no_row() -> None:
    why = explained(failing_world(START, failures=1))
    assert why.failing is None
    assert why.next_steps == ("Every replica runs.",)
