"""The judgement of real errors, measured on a corpus with the judgement of a person.

Each error ends the only program of a job twice, at the same line of the job's own code. A fault
that passes must not end the job; one that lasts must end it at its second occurrence.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tests.support.alone import a_job, a_plan, a_state
from tests.support.error_corpus import LASTING, PASSING, LabelledError, read_corpus
from tests.support.jobs import CHIEF, a_replica, at, exited
from trainmaster.core.actions import FailJob
from trainmaster.core.events import ProgramError
from trainmaster.core.evolve import evolve
from trainmaster.core.model.job import State
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.task_group import Accelerator
from trainmaster.core.rules.judge import judge
from trainmaster.core.rules.replica_exit import IMPORT_ERRORS
from trainmaster.program_errors.meaning import is_peer_loss, meaning_of

NOW = at(100)
OWN = "trainer/task.py:41 in main"
"""Where the job's own code raises each error."""
HALVES = pytest.mark.parametrize("is_held_out", [False, True], ids=["looked at", "held out"])
RUNTIMES = (
    "torch",
    "tensorflow",
    "keras",
    "jax",
    "xgboost",
    "horovod",
    "lightning",
    "huggingface",
    "deepspeed",
    "ray",
    "gloo",
    "nccl",
    "mpi",
    "grpc",
    "requests",
    "urllib3",
    "aiohttp",
    "google",
    "gcsfs",
    "botocore",
    "wandb",
    "errno",
    "gaierror",
)
"""Libraries whose errors the corpus must have."""


def half(*, is_held_out: bool) -> list[LabelledError]:
    """Return the errors that the rules were written by, or those that only measure them."""
    return [error for error in read_corpus() if error.is_held_out is is_held_out]


def lives(error: LabelledError) -> int | None:
    """Return at which occurrence the error ends its job: 1 or 2; None: at neither."""
    raised = ProgramError(error.type, error.message, OWN, OWN, error.causes)
    running = a_job_of(error)
    for occurrence in (1, 2):
        exit_ = exited(CHIEF, 1, error=raised, ran_s=5, incarnation=occurrence)
        decision = judge(running, exit_, NOW)
        if isinstance(decision.action, FailJob):
            return occurrence
        (restarted,) = evolve(running, decision, NOW).replicas
        started = replace(restarted, state=ReplicaState.RUNNING, ready_at=NOW)
        running = replace(running, replicas=(started,))
    return None


def a_job_of(error: LabelledError) -> State:
    """Return a running job whose machines are those of the error."""
    plan = a_plan(workers=2 if error.job == "several" else 0)
    gpu = Accelerator("nvidia-l4", 1) if error.machine != "cpu" else None
    groups = tuple(replace(group, accelerator=gpu) for group in plan.groups)
    return a_state(a_replica(CHIEF), job=a_job(plan=replace(plan, groups=groups)))


def describe(error: LabelledError) -> str:
    return f"{error.label}: {error.type}: {error.message[:120]} ({error.origin})"


@HALVES
def test_no_passing_fault_ends_a_job(*, is_held_out: bool) -> None:
    passing = [error for error in half(is_held_out=is_held_out) if error.is_passing]
    assert len(passing) > 50
    ended = {describe(error): lives(error) for error in passing if not error.exception}
    assert {text: at_life for text, at_life in ended.items() if at_life is not None} == {}


@HALVES
def test_no_lasting_fault_has_more_than_two_lives(*, is_held_out: bool) -> None:
    lasting = [error for error in half(is_held_out=is_held_out) if not error.is_passing]
    assert len(lasting) > 100
    survived = [error for error in lasting if not error.exception and lives(error) is None]
    assert list(map(describe, survived)) == []


@HALVES
def test_lost_and_silent_peers_are_recognized(*, is_held_out: bool) -> None:
    """A verdict charges the member that failed by itself, and not those that lost it."""
    errors = half(is_held_out=is_held_out)
    wrong = [
        describe(error)
        for error in errors
        if error.label in ("lost peer", "silent peer")
        and not is_peer_loss(meaning_of(error.type, error.message, error.causes, error.place))
    ]
    assert wrong == []


def test_only_errors_of_imports_end_a_job_at_their_first_occurrence() -> None:
    first = [error for error in read_corpus() if lives(error) == 1]
    assert first
    assert {error.type.rpartition(".")[2] for error in first} <= set(IMPORT_ERRORS)
    assert not any(error.is_passing for error in first)


def test_exceptions_are_still_needed_and_few() -> None:
    """An exception that the rules judge rightly is to be removed."""
    excepted = [error for error in read_corpus() if error.exception]
    assert len(excepted) <= len(read_corpus()) // 50
    for error in excepted:
        assert (lives(error) is None) is not error.is_passing, describe(error)


def test_corpus_has_origins_labels_and_all_runtimes() -> None:
    corpus = read_corpus()
    assert len(corpus) >= 300
    assert {error.label for error in corpus} == {*PASSING, *LASTING}
    assert {error.machine for error in corpus} == {"gpu", "tpu", "cpu"}
    assert all(error.origin for error in corpus)
    keys = Counter((error.type, error.message, error.machine, error.job) for error in corpus)
    assert max(keys.values()) == 1
    text = "\n".join(f"{error.type} {error.message} {error.origin}" for error in corpus).lower()
    assert [name for name in RUNTIMES if name not in text] == []
