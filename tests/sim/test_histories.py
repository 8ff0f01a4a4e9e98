"""Seeded histories under every kind of fault: no invariant breaks, and everything ends."""

from __future__ import annotations

import logging
import random
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta

import pytest

from simulator.history import History
from simulator.scenarios import generator
from simulator.scenarios.fault_profiles import (
    CALM,
    CAPACITY,
    EVERYTHING,
    HANDS,
    LINE,
    MACHINES,
    PROFILES,
    SLICES,
    Profile,
)
from simulator.scenarios.scenario import HistoryError

SEEDS = 800
"""Of each profile."""
FOUND = (
    ("replays", 3),  # a VM that went before its agent spoke was never made again: its request id was answered for ever
    ("machines", 832),  # a loss told under an older attempt used up the machine's only key
    ("races", 81),  # a commit did not notice that the job was rerun meanwhile, and the ledger could not be folded
    ("everything", 90),  # the job was rerun between the two reads of a loss, which was then of no replica
    ("capacity", 62),  # a replica that was done before its vm-ready was handled never counted as ready
    ("machines", 58),  # a primary that restarted after its workers were done waited for them for ever
    ("races", 630),  # after a rerun a worker was done with the chief's last process, and the next one waited for it
    ("slices", 5004935),  # who was done beside the last process of the attempt before was told to be just too late
    ("slices", 5000477),  # who was done was not called back, as it was told to be up only after the primary's loss
    ("slices", 73),  # a host of a slice met the processes that other hosts still ran of an earlier incarnation
    ("capacity", 28),  # who was up stayed behind when its peers were requested in another zone
    ("races", 71),  # the same, where its vm-ready was overtaken by the move
)
"""Histories that once broke an invariant, and which defect they had found."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Thousands of warnings about what is done on purpose."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def test_ten_thousand_histories_are_told() -> None:
    assert SEEDS * len(PROFILES) >= 10_000


@pytest.mark.slow
@pytest.mark.parametrize("name", PROFILES)
def test_no_history_breaks_an_invariant(name: str) -> None:
    states = Counter(generator.case(seed, PROFILES[name]).state.value for seed in range(SEEDS))
    assert states["SUCCEEDED"] > SEEDS / 20, states
    print(f"{name}: {dict(states)}")


@pytest.mark.parametrize(("profile", "seed"), FOUND)
def test_what_was_found_once_stays_repaired(profile: str, seed: int) -> None:
    assert generator.case(seed, PROFILES[profile]).state.is_terminal


@pytest.mark.parametrize("seed", range(5))
def test_the_same_seed_is_the_same_history(seed: int) -> None:
    first = generator.case(seed, EVERYTHING, digest=True).digest
    assert generator.case(seed, EVERYTHING, digest=True).digest == first
    assert len(first) > 10


def test_different_seeds_are_different_histories() -> None:
    assert len({generator.case(seed, CALM, digest=True).digest for seed in range(20)}) == 20


def test_where_nothing_goes_wrong_every_job_succeeds_and_loses_nothing() -> None:
    for seed in range(100):
        outcome = generator.case(seed, CALM)
        assert outcome.state == "SUCCEEDED"
        assert outcome.lost_s == 0
        assert outcome.attempts == 1
        assert not outcome.decisions["restart_replica"]


def test_the_faults_do_happen() -> None:
    """A simulator in which nothing goes wrong proves nothing."""
    seen: Counter[str] = Counter()
    for seed in range(60):
        seen.update(generator.case(seed, EVERYTHING).decisions)
        seen.update(generator.case(seed, MACHINES).decisions)
    for decision in ("restart_replica", "hold_replica", "replace_vm", "rerun_job", "continue_provisioning", "ignore"):
        assert seen[decision] > 5, (decision, seen)
    assert seen["reactivate_replica"]


@pytest.mark.parametrize(
    ("profile", "decisions"),
    [
        (HANDS, ("delete_job", "set_labels", "cancel_job")),
        (SLICES, ("mark_host_ready", "record_host_done", "replace_vm", "restart_replica")),
        (CAPACITY, ("continue_provisioning", "rerun_job", "fail_job")),
    ],
    ids=lambda each: each.name if isinstance(each, Profile) else "",
)
def test_what_a_profile_is_about_does_happen(profile: Profile, decisions: tuple[str, ...]) -> None:
    seen: Counter[str] = Counter()
    for seed in range(60):
        seen.update(generator.case(seed, profile).decisions)
    assert all(seen[decision] for decision in decisions), seen


def test_jobs_do_wait_in_line_and_all_of_them_end() -> None:
    jobs = waited = 0
    for seed in range(20):
        rng = random.Random(seed)  # noqa: S311 - chance that repeats is the point
        history = History(generator.scenario(rng, LINE), rng)
        history.run()
        assert history.overseer.has_ended
        for job_id in history.watches:
            moments = {entry.key: entry.at for entry in history.store.ledger(job_id)}
            began = moments.get("preparing", moments["submitted"])
            jobs, waited = jobs + 1, waited + (began - moments["submitted"] > timedelta(seconds=60))
    assert jobs >= 40
    assert waited >= 10


def test_a_failing_history_says_how_to_replay_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a flow's bug")

    monkeypatch.setattr("shared.flows.vm_ready.handle", broken)
    with pytest.raises(HistoryError, match=r"python -m simulator --seed 3 --profile calm") as raised:
        generator.case(3, CALM)
    assert "RuntimeError: a flow's bug" in str(raised.value)
    assert "insert" in str(raised.value), "the trace is there"
