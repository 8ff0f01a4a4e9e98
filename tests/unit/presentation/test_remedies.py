"""What to do about an end: the advice about the program's error, or that of the reason."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tests.support.failing_world import MISSING_FILE, failing_world
from tests.support.jobs import CHIEF, a_plan, exited
from tests.support.world import World
from trainmaster.client.explanation import explanation_of
from trainmaster.core.decisions import Reason
from trainmaster.core.events import ProgramError
from trainmaster.core.model.job import JobState
from trainmaster.core.rules.messages import summary
from trainmaster.presentation.explanation import explanation
from trainmaster.presentation.reasons import help_on, without_links
from trainmaster.presentation.remedies import ending_of, remedy

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ADVICE = "data/train.csv is not on the VM"


def failed_world(*, workers: int) -> World:
    """Return a job that the same missing file has ended at its second occurrence."""
    world = failing_world(NOW, failures=1, workers=workers)
    world.exit_program(CHIEF, error=MISSING_FILE, ran_s=5.0, tail="Traceback …")
    world.deliver()
    return world


def test_remedy_of_any_other_end_is_that_of_its_reason() -> None:
    event = exited(CHIEF, 1, error=ProgramError("ValueError", "No module named 'x'", frame=""))
    text = remedy(Reason.SAME_FAILURE_AGAIN, event, a_plan())
    assert text == without_links(help_on(Reason.SAME_FAILURE_AGAIN).do)


@pytest.mark.parametrize("workers", [0, 2], ids=["judged alone", "gang"])
def test_error_message_and_explanation_have_the_same_advice(workers: int) -> None:
    world = failed_world(workers=workers)
    loaded = world.store.load_attempt(world.job_id)
    assert loaded is not None
    job = loaded.state.job
    assert job.state is JobState.FAILED
    ending = ending_of(job, world.ledger)
    assert ending is not None
    assert ending.remedy.startswith(ADVICE)
    assert ending.remedy in summary(job.error_message or "")
    document = explanation(loaded.state, world.ledger, (), world.now)
    assert document["whatToDo"] == ending.remedy
    assert document["error"] == (
        "The replica chief 0 exited with a non-zero status of 1. FileNotFoundError: [Errno 2] No"
        " such file or directory: 'data/train.csv' (train.py:18 in <module>)"
    )
    assert document["reason"] == ending.reason
    explained = explanation_of(document)
    assert explained.what_to_do == ending.remedy
    assert "Error: The replica chief 0 exited with a non-zero status of 1." in str(explained)
    assert f"What to do: {ADVICE}" in str(explained)


def test_advice_ends_with_a_command_that_explains_the_reason() -> None:
    world = failed_world(workers=0)
    loaded = world.store.load_attempt(world.job_id)
    assert loaded is not None
    ending = ending_of(loaded.state.job, world.ledger)
    assert ending is not None
    assert ending.advice.endswith(f"More: `trainmaster why --reason {ending.reason}`")


def test_job_that_runs_has_no_ending() -> None:
    world = failing_world(NOW, failures=1)
    loaded = world.store.load_attempt(world.job_id)
    assert loaded is not None
    assert ending_of(loaded.state.job, world.ledger) is None
