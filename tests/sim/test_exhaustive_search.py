"""A chief and a worker, or a chief alone, under every possible order of events.

An allowance bounds the search: how often each kind of fault may happen.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from tests.support.exhaustive_search.node import Allowance, SearchResult
from tests.support.exhaustive_search.search import Search
from trainmaster.core.model.job import Job
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.vm import Vm
from trainmaster.core.reconcile.desired import DesiredVm
from trainmaster.core.reconcile.plan import vm_steps
from trainmaster.core.reconcile.steps import Delete, Step
from trainmaster_local.simulator.invariants import ViolationError
from trainmaster_local.simulator.scenarios.generator import JOB_ID, training_job

HEAVY = pytest.mark.heavy(
    fact="no order of events breaks a job",
    quick="three complete searches in the same module; `sim/test_histories.py`",
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def search(allowance: Allowance, states_max: int, workers: int = 1) -> SearchResult:
    document, _ = training_job(workers=workers, variant=0)
    return Search(JOB_ID, document, allowance).run(states_max)


STATES_MAX = 400_000
"""The budget of a search.

No time limits it: it takes as long as the machine needs for these states.
"""


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    "allowance",
    [
        Allowance(duplicates=1, crashes=0, failures=0, losses=0, sweeps=0),
        pytest.param(
            Allowance(duplicates=0, crashes=1, failures=0, losses=0, sweeps=0),
            marks=HEAVY,
        ),
        pytest.param(
            Allowance(duplicates=0, crashes=0, failures=0, losses=1, sweeps=0),
            marks=HEAVY,
        ),
        pytest.param(
            Allowance(duplicates=0, crashes=0, failures=1, losses=0, sweeps=0),
            marks=HEAVY,
        ),
        pytest.param(
            Allowance(duplicates=1, crashes=1, failures=0, losses=0, sweeps=0),
            marks=HEAVY,
        ),
        pytest.param(
            Allowance(duplicates=0, crashes=1, failures=0, losses=1, sweeps=0),
            marks=HEAVY,
        ),
        pytest.param(
            Allowance(duplicates=0, crashes=0, failures=1, losses=1, sweeps=0),
            marks=HEAVY,
        ),
    ],
    ids=lambda allowance: repr(allowance).removeprefix("Allowance"),
)
def test_invariants_hold_in_every_reachable_state(allowance: Allowance) -> None:
    result = search(allowance, STATES_MAX)
    print(result)
    assert result.is_complete
    assert result.states > 400
    assert result.outcomes == {"SUCCEEDED"}


@pytest.mark.timeout(0)
@pytest.mark.parametrize(
    ("allowance", "states_min"),
    [
        (Allowance(duplicates=0, crashes=1, failures=1, losses=0, sweeps=0), 400),
        (Allowance(duplicates=0, crashes=1, failures=0, losses=1, sweeps=0), 300),
        pytest.param(
            Allowance(duplicates=0, crashes=0, failures=1, losses=1, sweeps=0), 250, marks=HEAVY
        ),
        pytest.param(
            Allowance(duplicates=0, crashes=1, failures=1, losses=1, sweeps=0), 3_000, marks=HEAVY
        ),
        pytest.param(
            Allowance(duplicates=1, crashes=1, failures=1, losses=1, sweeps=0), 10_000, marks=HEAVY
        ),
    ],
)
def test_invariants_hold_if_a_chief_fails_loses_its_vm_or_a_function_crashes(
    allowance: Allowance, states_min: int
) -> None:
    result = search(allowance, STATES_MAX, workers=0)
    print(result)
    assert result.is_complete
    assert result.states > states_min
    assert result.outcomes == {"SUCCEEDED"}


def test_search_without_deletions_reports_left_vms_and_the_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def without_deletions(
        job: Job,
        desired: tuple[DesiredVm, ...],
        vms: tuple[Vm, ...],
        replicas: tuple[Replica, ...] = (),
        *,
        may_start: bool = True,
    ) -> tuple[Step, ...]:
        steps = vm_steps(job, desired, vms, replicas, may_start=may_start)
        return tuple(step for step in steps if not isinstance(step, Delete))

    monkeypatch.setattr("trainmaster.core.reconcile.plan.vm_steps", without_deletions)
    with pytest.raises(ViolationError, match=r"(?s)stuck.*after\ndeliver trainmaster-submit"):
        search(Allowance(duplicates=0, crashes=0, failures=0, losses=0, sweeps=0), states_max=1000)
