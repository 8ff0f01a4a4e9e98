"""One chief, one worker: every order of everything, up to a bound."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from shared.core.model.job import Job, Replica
from shared.core.reconcile.plan import Delete, DesiredVm, Step, Vm, plan_steps
from shared.flows import provision
from simulator.invariants.job_invariants import ViolationError
from simulator.scenarios.generator import JOB_ID, job
from simulator.search.exhaustive import Search
from simulator.search.search_state import Allowance, Found


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def search(allowance: Allowance, states_max: int) -> Found:
    document, _ = job(workers=1, variant=0)
    return Search(JOB_ID, document, allowance).run(states_max)


@pytest.mark.slow
@pytest.mark.parametrize(
    "allowance",
    [
        Allowance(duplicates=1, crashes=1, failures=0, losses=0, sweeps=0),
        Allowance(duplicates=0, crashes=0, failures=1, losses=0, sweeps=0),
        Allowance(duplicates=0, crashes=0, failures=0, losses=1, sweeps=1),
    ],
    ids=lambda allowance: repr(allowance).removeprefix("Allowance"),
)
def test_no_order_of_what_may_happen_breaks_an_invariant(allowance: Allowance, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every state that can be reached is visited: nothing is left out within the bound. Who is called back incarnations twice,
    which makes several times as many states: that is left to histories, whose programs do wait for each other."""
    monkeypatch.setattr(provision, "replicas_to_reactivate", lambda _: ())
    found = search(allowance, states_max=20_000)
    print(found)
    assert found.is_complete
    assert found.states > 1000
    assert found.outcomes == {"SUCCEEDED"}


def test_the_search_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without deletions VMs are left, and the way there is told."""

    def lazy(
        job: Job, wants: tuple[DesiredVm, ...], vms: tuple[Vm, ...], replicas: tuple[Replica, ...] = ()
    ) -> tuple[Step, ...]:
        return tuple(step for step in plan_steps(job, wants, vms, replicas) if not isinstance(step, Delete))

    monkeypatch.setattr(provision, "plan_steps", lazy)
    with pytest.raises(ViolationError, match=r"(?s)stuck.*after\ndeliver trainmaster-submit"):
        search(Allowance(0, 0, 0, 0, 0), states_max=1000)
