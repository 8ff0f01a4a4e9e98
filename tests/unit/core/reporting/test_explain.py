"""What `why` and `replay` print: the ledger of one job in words.

The ledger has one entry per event. The key of a replica's event names attempt, replica, incarnation
and VM generation, which count from 1: `1-worker-0-2-vm-1-ready` is the second start of worker 0's
program, in its first VM.

A round is one common start of all members of a job.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.jobs import CHIEF, WORKER_0, WORKER_1, a_job, a_replica, a_state
from tests.support.world import World
from trainmaster.core.decisions import Rule
from trainmaster.core.events import CapacityErrorKind, VmsNotCreated
from trainmaster.core.ledger import fold
from trainmaster.core.model.exit_policy import ExitAction, ExitPolicy, ExitRule, Preset
from trainmaster.core.model.job import JobState, Placement, State
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.round import Round
from trainmaster.core.reporting.explain import (
    differences,
    replica_of,
    rules_passed_over,
    shown_entries,
)
from trainmaster.core.reporting.next_steps import next_steps
from trainmaster.core.rules.admission_queue import Wait
from trainmaster.core.rules.judge import judge


def a_world() -> World:
    """Return a world in which worker 0 exits with 1 and restarts, and the job succeeds."""
    world = World(is_independent=True)
    world.start_running()
    world.exit_program(WORKER_0, 1)
    world.deliver()
    world.send("vm-ready", WORKER_0)
    world.exit_program(CHIEF, 0)
    world.deliver()
    return world


def test_rules_passed_over_are_those_before_the_one_that_applied() -> None:
    entry = next(entry for entry in a_world().ledger if entry.key == "1-worker-0-1-vm-1-exit")
    assert entry.decision.rule is Rule.RESTART
    assert [rule for rule, _ in rules_passed_over(entry)] == [
        Rule.PRIMARY_DONE,
        Rule.VM_LOST,
        Rule.VM_LOST,
        Rule.VM_LOST,
        Rule.VM_LOST,
        Rule.RETRIES_DISABLED,
        Rule.PERMANENT,
        Rule.CRASH,
    ]
    assert all(condition for _, condition in rules_passed_over(entry))


def test_entries_that_concern_a_replica_are_its_own_and_the_jobs() -> None:
    keys = [
        entry.key
        for entry in a_world().ledger
        if replica_of(entry) in (None, ReplicaId(TaskType.WORKER, 0))
    ]
    assert keys == [
        "submitted",
        "preparing",
        "1-worker-0-1-vm-1-ready",
        "1-all-ready",
        "1-worker-0-1-vm-1-exit",
        "1-worker-0-2-vm-1-ready",
    ]


def test_next_steps_name_what_each_replica_waits_for() -> None:
    down = a_replica(WORKER_0, ReplicaState.REPLACING)
    held = a_job(round=Round(2, is_held=True))
    ready = [a_replica(replica_id, incarnation=2) for replica_id in (CHIEF, WORKER_1)]
    assert next_steps(held, a_state(down, *ready).replicas) == (
        "worker 0 waits for another VM of the same name.",
        "Round 2 begins when every member is ready. It waits for worker 0.",
    )
    assert next_steps(held, a_state(a_replica(WORKER_0, incarnation=2), *ready).replicas) == (
        "Every member is ready: round 2 begins.",
    )
    assert next_steps(a_job(), a_state().replicas) == ("Every replica runs.",)
    assert next_steps(a_job(JobState.FAILED), a_state(down).replicas) == ()


def test_next_step_of_a_queued_job_is_its_admission() -> None:
    queued = a_job(JobState.QUEUED)
    (sentence,) = next_steps(queued, a_state(a_replica(CHIEF, ReplicaState.WAITING)).replicas)
    assert sentence == "The job waits to be admitted; the sweep looks at it every minute."
    wait = Wait(
        queued.job_id, 2, "it needs 8 vcpus, and 8 of 8 are in use or reserved for jobs before it"
    )
    assert next_steps(queued, (), (), wait) == (
        (
            "Position 2 in the admission queue: it needs 8 vcpus, and 8 of 8 are in use or reserved"
            " for jobs before it."
        ),
    )


@pytest.mark.parametrize(
    ("kind", "message", "problem"),
    [
        (
            CapacityErrorKind.QUOTA,
            "Quota 'NVIDIA_T4_GPUS' exceeded.  Limit: 8.0 in region us-central1.",
            (
                "the quota NVIDIA_T4_GPUS is used up: Quota 'NVIDIA_T4_GPUS' exceeded. Limit: 8.0"
                " in region us-central1"
            ),
        ),
        (
            CapacityErrorKind.QUOTA,
            "Quota limit 'TPUV2PerZone' has been exceeded. Limit: 0 in region us.",
            (
                "the quota TPUV2PerZone is used up: Quota limit 'TPUV2PerZone' has been exceeded."
                " Limit: 0 in region us"
            ),
        ),
        (CapacityErrorKind.QUOTA, "no more of it", "a quota is used up: no more of it"),
        (CapacityErrorKind.STOCKOUT, "no resources", "no capacity in us-central1-a"),
    ],
)
def test_next_steps_distinguish_missing_quota_from_missing_capacity(
    kind: CapacityErrorKind, message: str, problem: str
) -> None:
    world = World(is_independent=True)
    world.submit()
    world.deliver()
    event = VmsNotCreated(
        "digits_1",
        attempt=1,
        zone="us-central1-a",
        round=0,
        error_kind=kind,
        code="CODE",
        message=message,
        at=world.now,
    )
    decision = judge(State(world.job, tuple(world.replicas)), event, world.now)
    entry = replace(world.ledger[-1], event=event, decision=decision)
    state = a_state(
        a_replica(CHIEF, ReplicaState.WAITING),
        job=a_job(JobState.PREPARING, placement=Placement(zone_index=0, round=3)),
    )
    sentences = next_steps(state.job, state.replicas, (*world.ledger, entry))
    assert f"after 3 capacity errors so far (the last one: {problem})" in sentences[1]
    other_attempt = replace(state.job, attempt=2)
    assert (
        "the last one" not in next_steps(other_attempt, state.replicas, (*world.ledger, entry))[1]
    )


def test_differences_are_the_exits_that_another_policy_would_judge_differently() -> None:
    ledger = a_world().ledger
    assert differences(ledger, ExitPolicy()) == ()
    assert differences(ledger, ExitPolicy(Preset.RESTART)) == ()
    (different,) = differences(ledger, ExitPolicy(Preset.SERVICE))
    assert (different.entry.key, different.would_be.action.kind) == (
        "1-worker-0-1-vm-1-exit",
        "fail_job",
    )
    (rerun,) = differences(
        ledger, ExitPolicy(rules=(ExitRule(first=1, last=1, action=ExitAction.RERUN),))
    )
    assert rerun.would_be.action.kind == "rerun_job"


def test_fold_of_a_complete_ledger_is_the_stored_state() -> None:
    world = a_world()
    stored = world.store.load_attempt(world.job_id)
    assert stored is not None
    assert fold(world.ledger) == stored.state
    assert (
        fold([entry for entry in world.ledger if entry.key != "1-worker-0-1-vm-1-exit"][:-2])
        != stored.state
    )


def test_each_round_has_one_sentence_and_all_ends_on_request() -> None:
    world = World()
    world.start_running()
    world.exit_program(
        WORKER_0, error={"type": "ValueError", "message": "bad", "frame": "a.py:1 in f"}
    )
    stopped = [
        entry.decision.text for entry, _ in shown_entries(world.ledger, None, everything=False)
    ][-1]
    assert stopped.startswith(
        "worker 0 exited with status 1: ValueError: bad (a.py:1 in f): round 1 ends"
    )
    world.deliver()
    shown = [
        entry.decision.text for entry, _ in shown_entries(world.ledger, None, everything=False)
    ]
    verdict = (
        "Round 1 ended: worker 0 failed first: ValueError: bad (a.py:1 in f). "
        "Restart 1 of 5 of worker 0, in the same VM."
    )
    assert [text for text in shown if "ound 1" in text or "round 2" in text] == [verdict]
    everything = [
        entry.decision.text for entry, _ in shown_entries(world.ledger, None, everything=True)
    ]
    assert sum("is ready for round 2" in text for text in everything) == 3
    assert any(
        "Before, it exited with status 1: ValueError: bad (a.py:1 in f)." in text
        for text in everything
    )
