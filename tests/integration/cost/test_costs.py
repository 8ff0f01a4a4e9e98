"""The table of `bench.costs` is what the flows need on Google's emulator of Firestore, exactly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import ClassVar, TypeVar

import pytest

from bench.agents import agents
from bench.cloud import Emulators
from bench.control_plane import Delivery
from bench.costs import (
    ABOVE_FLOOR,
    KEPT,
    PHASES,
    REQUESTS,
    RERUN,
    Formula,
    PhaseCost,
    job_without_faults,
)
from bench.gang_job import Cost, Gang, KeepingGang, RerunGang
from bench.jobs import job_spec
from bench.meter import Meter, attach
from trainmaster.core.rules.evidence import ENDS_READ
from trainmaster.flows import submit

GangT = TypeVar("GangT", bound=Gang)
SIZES = (2, 10, ENDS_READ + 5)


class KeepingIndependent(KeepingGang):
    """A job that keeps its machines, and whose replicas are judged each alone."""

    fields: ClassVar[Mapping[str, object]] = {
        "trainmaster": {"keepMachines": "900s", "independentReplicas": True}
    }


@contextmanager
def a_gang(kind: type[GangT], size: int, firestore: str) -> Iterator[tuple[GangT, Meter]]:
    """Yield a submitted job. One thread: everything happens in a fixed order."""
    meter = Meter()
    with Emulators(firestore).project() as project, agents(project.name) as senders:
        attach(project.client, meter)
        gang = kind(
            project.store,
            project.observer,
            meter,
            senders,
            size,
            threads=1,
            sleep=lambda _: None,
        )
        yield gang, meter


def counts_of(counted: Cost) -> Counter[str]:
    names = ("reads", "writes", "deletes", "invocations")
    return Counter({name: getattr(counted, name) for name in names})


def assert_costs(
    counted: Counter[str], phase: str, size: int, table: Mapping[str, PhaseCost] = PHASES
) -> None:
    cost = table[phase]
    expected = {
        "reads": cost.reads.at(size),
        "writes": cost.writes.at(size),
        "deletes": cost.deletes.at(size),
        "invocations": cost.invocations.at(size),
    }
    assert counted == expected, (phase, size)


@pytest.mark.parametrize("size", SIZES)
def test_each_phase_costs_exactly_what_the_table_says(size: int, firestore_emulator: str) -> None:
    with a_gang(Gang, size, firestore_emulator) as (gang, _):
        assert_costs(counts_of(gang.submission), "submission", size)
        assert_costs(counts_of(gang.cost_of(gang.start)), "start", size)
        assert_costs(counts_of(gang.cost_of(gang.restart_one)), "restart", size)
        assert_costs(counts_of(gang.cost_of(gang.lose_one)), "loss", size)
        assert_costs(counts_of(gang.cost_of(gang.end)), "end", size)


@pytest.mark.parametrize("size", SIZES)
def test_rerun_costs_exactly_what_the_table_says(size: int, firestore_emulator: str) -> None:
    with a_gang(RerunGang, size, firestore_emulator) as (gang, _):
        gang.start()
        assert_costs(counts_of(gang.cost_of(gang.rerun)), "rerun", size)


@pytest.mark.parametrize("size", SIZES)
def test_keeping_machines_costs_exactly_what_the_table_says(
    size: int, firestore_emulator: str
) -> None:
    """Whatever their number, a minute in which machines are kept costs the same."""
    with a_gang(KeepingGang, size, firestore_emulator) as (gang, _):
        gang.start()
        assert_costs(counts_of(gang.cost_of(gang.end)), "end", size, KEPT)
        while_kept = counts_of(gang.cost_of(gang.sweep))
        assert_costs(counts_of(gang.cost_of(gang.release)), "release", size, KEPT)
        while_kept.subtract(counts_of(gang.cost_of(gang.sweep)))
        assert_costs(while_kept, "minute", size, KEPT)


def test_end_of_replicas_that_are_judged_alone_writes_no_more(firestore_emulator: str) -> None:
    """What they lose beside the end is found by the provisioning after it."""
    writes = []
    for kind in (KeepingGang, KeepingIndependent):
        with a_gang(kind, SIZES[1], firestore_emulator) as (gang, _):
            gang.functions.run(gang.reports())
            (chief, *_) = gang.exits(exit_status=0)
            writes.append(gang.cost_of(partial(gang.functions.run, [chief])).writes)
    together, alone = writes
    assert alone == together


def test_each_event_needs_the_requests_of_the_table(firestore_emulator: str) -> None:
    """Without what `provision` does afterwards."""
    with a_gang(Gang, 3, firestore_emulator) as (gang, meter):
        counted = {}
        deps = replace(gang.functions.deps, messages_per_minute=60)
        _, submission = gang.functions.submit("digits_2", job_spec(replicas=3))
        meter.reset()
        submit.on_message(submission, deps)
        counted["submission by a message, with the quota of messages"] = meter.requests
        gang.functions.requests.drain()
        first, second, last = gang.reports()

        def count(name: str, delivery: Delivery) -> None:
            meter.reset()
            gang.functions.deliver(*delivery)
            counted[name] = meter.requests

        count("report that a replica is ready", first)
        gang.functions.deliver(*second)
        count("last report, which requests the start", last)
        gang.functions.run([])
        worker_exit = gang.exits(exit_status=0)[-1]
        count("exit", worker_exit)
        count("duplicate of an exit", worker_exit)
        request, _repeated = gang.functions.requests.drain()
        gang.functions.run([(request.topic, request)])
        count("request to provision that is done already", (request.topic, request))
        assert counted == REQUESTS


@pytest.mark.parametrize("phase", PHASES)
def test_cost_per_replica_is_at_most_a_fifth_above_its_floor(phase: str) -> None:
    cost = PHASES[phase]
    assert cost.floor is not None
    reads, writes = cost.reads.per_member, cost.writes.per_member
    assert (reads, writes) >= (cost.floor.reads, cost.floor.writes)
    is_near = reads <= 1.2 * cost.floor.reads and writes <= 1.2 * cost.floor.writes
    assert is_near is (phase not in ABOVE_FLOOR)


def test_each_operation_of_a_rerun_has_a_reason() -> None:
    cost = PHASES["rerun"]
    assert cost.floor is not None
    needed = [part for part in RERUN if not part.is_above_floor]
    for parts, reads, writes in (
        (RERUN, cost.reads.per_member, cost.writes.per_member),
        (needed, cost.floor.reads, cost.floor.writes),
    ):
        assert sum(part.reads for part in parts) == reads
        assert sum(part.writes for part in parts) == writes
    assert all(part.why for part in RERUN)


def test_sum_of_the_phases_is_the_cost_of_a_job() -> None:
    whole = job_without_faults()
    assert whole.reads.at(10) == sum(
        PHASES[name].reads.at(10) for name in ("submission", "start", "end")
    )
    assert 0 < whole.dollars(10) < whole.dollars(1000) < 0.1


@pytest.mark.parametrize(
    ("formula", "text", "at_ten"),
    [
        (Formula(3), "3", 3),
        (Formula(0, 2), "2 N", 20),
        (Formula(7, 1), "7 + N", 17),
        (Formula(21, 7, has_verdict=True), f"21 + 7 N + min(N, {ENDS_READ})", 101),
    ],
)
def test_formula_is_written_with_every_term(formula: Formula, text: str, at_ten: int) -> None:
    assert str(formula) == text
    assert formula.at(10) == at_ten


def test_formulas_with_a_verdict_are_not_added() -> None:
    loss: PhaseCost = PHASES["loss"]
    with pytest.raises(ValueError, match="verdict"):
        _ = loss.reads + Formula(1)
