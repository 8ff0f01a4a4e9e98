"""A chief and a worker, or a chief alone, under every possible order of events, up to a bound."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from trainmaster.core.model.job import Job
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.vm import Vm
from trainmaster.core.reconcile.desired import DesiredVm
from trainmaster.core.reconcile.plan import vm_steps
from trainmaster.core.reconcile.steps import Delete, Step
from trainmaster.simulator.invariants.violation import ViolationError
from trainmaster.simulator.scenarios.generator import JOB_ID, training_job
from trainmaster.simulator.search.exhaustive_search import Search
from trainmaster.simulator.search.node import Allowance, SearchResult


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def search(allowance: Allowance, states_max: int, workers: int = 1) -> SearchResult:
    document, _ = training_job(workers=workers, variant=0)
    return Search(JOB_ID, document, allowance).run(states_max)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    "allowance",
    [
        pytest.param(Allowance(duplicates=1, crashes=1, failures=0, losses=0, sweeps=0), marks=pytest.mark.heavy),
        Allowance(duplicates=0, crashes=0, failures=1, losses=0, sweeps=0),
        pytest.param(Allowance(duplicates=0, crashes=1, failures=0, losses=1, sweeps=0), marks=pytest.mark.heavy),
        pytest.param(Allowance(duplicates=0, crashes=0, failures=1, losses=1, sweeps=0), marks=pytest.mark.heavy),
    ],
    ids=lambda allowance: repr(allowance).removeprefix("Allowance"),
)
def test_invariants_hold_in_every_reachable_state(allowance: Allowance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reactivation multiplies the number of states. It is left to the histories, whose programs wait for peers."""
    monkeypatch.setattr("trainmaster.core.reconcile.plan.replicas_to_reactivate", lambda _: ())
    result = search(allowance, states_max=400_000)
    print(result)
    assert result.is_complete
    assert result.states > 1000
    assert result.outcomes == {"SUCCEEDED"}


@pytest.mark.slow
@pytest.mark.parametrize("duplicates", [0, pytest.param(1, marks=pytest.mark.heavy)])
def test_invariants_hold_if_a_chief_fails_loses_its_vm_and_a_function_crashes(duplicates: int) -> None:
    result = search(Allowance(duplicates, crashes=1, failures=1, losses=1, sweeps=0), states_max=400_000, workers=0)
    print(result)
    assert result.is_complete
    assert result.states > 10_000
    assert result.outcomes == {"SUCCEEDED"}


def test_search_without_deletions_reports_left_vms_and_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_deletions(
        job: Job, desired: tuple[DesiredVm, ...], vms: tuple[Vm, ...], replicas: tuple[Replica, ...] = ()
    ) -> tuple[Step, ...]:
        return tuple(step for step in vm_steps(job, desired, vms, replicas) if not isinstance(step, Delete))

    monkeypatch.setattr("trainmaster.core.reconcile.plan.vm_steps", without_deletions)
    with pytest.raises(ViolationError, match=r"(?s)stuck.*after\ndeliver trainmaster-submit"):
        search(Allowance(0, 0, 0, 0, 0), states_max=1000)
