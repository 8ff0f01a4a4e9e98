"""Seeded histories under every fault profile: no invariant is violated, and every job ends."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from functools import cache

import hypothesis
import pytest

from trainmaster_local.simulator.history import History, run_seed
from trainmaster_local.simulator.scenarios.fault_profiles import (
    CALM,
    CAPACITY,
    EVERYTHING,
    PROFILES,
    QUEUE,
    SLICES,
    USERS,
    Profile,
)
from trainmaster_local.simulator.scenarios.generator import draw_scenario, rng_of
from trainmaster_local.simulator.scenarios.scenario import HistoryError, Outcome

SEEDS_PER_PROFILE = 800 if hypothesis.settings().max_examples > 150 else 10
"""800 in the thorough profile of `make test-all`. `make soak` simulates 200,000."""
REGRESSIONS = (
    # A VM was lost before its agent reported, and its request id returned the first result forever.
    ("replays", 3),
    # A VM loss that was reported under an older attempt used up the only key of that loss.
    ("machines", 832),
    # A commit did not notice that the job had been rerun meanwhile; the ledger could not be folded.
    ("races", 81),
    # The job was rerun between the two reads of a VM loss, which then belonged to no replica.
    ("everything", 90),
    # A replica that completed before its vm-ready event was handled never counted as ready.
    ("capacity", 62),
    # A primary that restarted after its workers had completed waited for them forever.
    ("machines", 58),
    # A worker completed alongside the previous attempt's primary; the next primary waited for it.
    ("races", 630),
    # The same, but the worker's exit event arrived slightly after the limit for late events.
    ("slices", 5004935),
    # A completed replica was not reactivated: it was reported ready after the primary's loss.
    ("slices", 5000477),
    # A host of a slice connected to processes of an earlier incarnation on other hosts.
    ("slices", 73),
    # A running replica stayed in its zone when its peers were requested in another zone.
    ("capacity", 28),
    # The same, when its vm-ready event was handled after the change of zone.
    ("races", 71),
    # A late duplicate of the submission notified again, with the attempt of the rerun job.
    ("races", 24177),
    # An exit that the agent reported after a reboot had the time of the report (in the simulator
    # only).
    ("skew", 7658),
    # A VM was named by an exit only, vanished, and was created again under its VM generation.
    ("lost-events", 42),
    # A replica survived an end of the primary that a peer caused, and completed after the restart.
    ("races", 429083),
)
"""Profile and seed of histories that violated an invariant before the described defect was fixed.

A change of the simulator that draws other random numbers turns them into other histories.
"""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Suppress thousands of warnings about faults that are injected on purpose."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@cache
def outcome_of(seed: int, profile: Profile) -> Outcome:
    """Run the history once for all tests of this module."""
    return run_seed(seed, profile, digest=True)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
def test_histories_violate_no_invariant(name: str) -> None:
    states = Counter(
        outcome_of(seed, PROFILES[name]).state.value for seed in range(SEEDS_PER_PROFILE)
    )
    assert states["SUCCEEDED"] > SEEDS_PER_PROFILE / 20, states
    print(f"{name}: {dict(states)}")


@pytest.mark.parametrize(("profile", "seed"), REGRESSIONS)
def test_history_that_once_failed_ends(profile: str, seed: int) -> None:
    assert outcome_of(seed, PROFILES[profile]).state.is_terminal


@pytest.mark.parametrize("seed", range(5))
def test_same_seed_gives_same_history(seed: int) -> None:
    first = outcome_of(seed, EVERYTHING).digest
    assert run_seed(seed, EVERYTHING, digest=True).digest == first
    assert len(first) > 10


def test_different_seeds_give_different_histories() -> None:
    assert len({outcome_of(seed, CALM).digest for seed in range(20)}) == 20


def test_jobs_without_faults_succeed_and_lose_no_work() -> None:
    for seed in range(20):
        outcome = outcome_of(seed, CALM)
        assert outcome.state == "SUCCEEDED"
        assert outcome.lost_s == 0
        assert outcome.attempts == 1
        assert not outcome.decisions["restart_replica"]


def find_decisions(profiles: tuple[Profile, ...], kinds: set[str], at_least: int = 1) -> set[str]:
    """Run up to 200 histories of each profile.

    Return the kinds of decisions that were made at least that often.
    """
    decisions: Counter[str] = Counter()
    found: set[str] = set()
    for seed in range(200):
        for profile in profiles:
            decisions.update(outcome_of(seed, profile).decisions)
        found = {kind for kind, count in decisions.items() if count >= at_least}
        if found >= kinds:
            break
    return found


def test_faults_lead_to_every_kind_of_recovery() -> None:
    kinds = {
        "restart_replica",
        "stop_round",
        "begin_round",
        "replace_vm",
        "rerun_job",
        "continue_provisioning",
        "ignore",
    }
    assert find_decisions(tuple(PROFILES.values()), kinds, at_least=5) >= kinds


@pytest.mark.parametrize(
    ("profile", "kinds"),
    [
        (USERS, ("delete_job", "set_labels", "cancel_job")),
        (SLICES, ("mark_host_ready", "record_host_done", "replace_vm", "restart_replica")),
        (CAPACITY, ("continue_provisioning", "rerun_job", "fail_job")),
    ],
    ids=lambda parameter: parameter.name if isinstance(parameter, Profile) else "",
)
def test_profile_leads_to_the_decisions_it_is_about(
    profile: Profile, kinds: tuple[str, ...]
) -> None:
    assert find_decisions((profile,), set(kinds)) >= set(kinds)


def test_queued_jobs_wait_for_capacity_and_all_end() -> None:
    jobs = waited = 0
    for seed in range(10):
        rng = rng_of(seed, QUEUE)
        history = History(draw_scenario(rng, QUEUE), rng)
        history.run()
        assert history.invariants.has_ended
        for job_id in history.jobs:
            entries = {entry.key: entry.at for entry in history.store.ledger(job_id)}
            admitted = entries.get("preparing", entries["submitted"])
            jobs += 1
            if admitted - entries["submitted"] > timedelta(seconds=60):
                waited += 1
    assert jobs >= 20
    assert waited >= 5


def test_failing_history_reports_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a flow's bug")

    monkeypatch.setattr("trainmaster.flows.vm_ready.handle", broken)
    with pytest.raises(
        HistoryError, match=r"python -m trainmaster_local.simulator --seed 3 --profile calm"
    ) as raised:
        run_seed(3, CALM)
    assert "RuntimeError: a flow's bug" in str(raised.value)
    assert "insert" in str(raised.value), "the trace is missing"
