"""Two servers with one budget submit at once, in every order of their calls, and answers are
lost: the budget is never exceeded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import greenlet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.jobs import a_spec
from tests.unit.cli.mcp.sessions import an_installation
from tests.unit.cost.price_lists import price_list
from trainmaster.cli.doctor.job_checks import NO_PRICES
from trainmaster.cli.mcp_budget import read_budget
from trainmaster.client.job import Job
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.jobspec.accept import AcceptedSpec, accept
from trainmaster_local.testing import Installation


@dataclass
class Network:
    """Calls of one server, in the order that the test chooses; and answers of `submit` that are
    lost.
    """

    installation: Installation
    lost: str
    """`late`: the job is created while the server waits; `never`: it is not; `answer`: only the
    answer is lost.
    """
    pending: list[Callable[[], object]] = field(default_factory=list)

    def submit(self, document: Mapping[str, Any], region: str | None) -> Job:
        self.pause()
        if self.lost == "late":
            self.pending.append(lambda: self.create(document, region))
        created = self.create(document, region) if self.lost in {"", "answer"} else None
        self.pause()
        if created is None or self.lost:
            raise TemporaryError("503")
        return created

    def create(self, document: Mapping[str, Any], region: str | None) -> Job:
        self.installation.now += timedelta(seconds=1)
        return self.installation.client.submit(document, region)

    def cancel(self, address: str) -> None:
        self.pause()
        self.installation.client.cancel(address)

    def describe(self, job: Job) -> Job:
        self.pause()
        return self.installation.client.describe(job)

    def recent_jobs(self, *arguments: Any, **named: Any) -> Any:
        self.pause()
        return self.installation._store.recent_jobs(*arguments, **named)

    def ledger(self, job_id: str) -> Any:
        return self.installation._store.ledger(job_id)

    def sleep(self, _: float) -> None:
        self.pause()
        for create in self.pending:
            create()

    def pause(self) -> None:
        parent = greenlet.getcurrent().parent
        if parent:
            parent.switch()


def submit_together(
    installation: Installation, jobs: Mapping[str, tuple[int, str]], turns: Iterator[int]
) -> tuple[int, ...]:
    """Submit two jobs (id → cap in USD, what is lost) by two servers.

    `turns`: which server makes the next call.

    Then, the budget of 12 USD is not exceeded, and each job whose submission succeeded is there.
    Return whose calls were made.
    """
    succeeded, order = [], []

    def submit(job_id: str, cap: int, lost: str) -> None:
        network = Network(installation, lost)
        budget = read_budget("agents:12USD", network, network, price_list())  # type: ignore[arg-type]
        budget.sleep = network.sleep
        with suppress(PermanentError, TemporaryError):
            budget.submit(
                {"jobId": job_id, **a_spec(), "trainmaster": {"maxCost": f"{cap} USD"}}, None
            )
            succeeded.append(job_id)

    servers = [(greenlet.greenlet(submit), [(job_id, *job)]) for job_id, job in jobs.items()]
    while alive := [server for server in servers if not server[0].dead]:
        running, arguments = server = alive[min(next(turns, 0), len(alive) - 1)]
        order.append(servers.index(server))
        running.switch(*(arguments.pop() if arguments else ()))
    budget = read_budget("agents:12USD", installation.client, installation._store, NO_PRICES)
    assert sum(map(budget._amount, budget.jobs())) <= 12
    assert all(installation.client.describe(job_id).state == "QUEUED" for job_id in succeeded)
    return tuple(order)


@pytest.fixture
def accepted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep what each document means: the same few are submitted in hundreds of orders."""
    known: dict[str, AcceptedSpec] = {}

    def accept_once(document: Mapping[str, object], **options: Any) -> AcceptedSpec:
        key = repr((document, options))
        return known[key] if key in known else known.setdefault(key, accept(document, **options))

    for module in ("trainmaster.cli.mcp_budget", "trainmaster.flows.job_creation.intake"):
        monkeypatch.setattr(f"{module}.accept", accept_once)


LOST = ("", "late", "never", "answer")


@pytest.mark.usefixtures("accepted_once")
@pytest.mark.parametrize("first", ["", "late", "answer"])
@pytest.mark.parametrize("second", LOST)
def test_of_two_jobs_that_race_one_stays(first: str, second: str) -> None:
    """In every order of calls in which each server is interrupted once."""
    orders: set[tuple[int, ...]] = set()
    before, between = 1, 1
    while True:
        installation, turns = an_installation(), iter([0] * before + [1] * between + [0] * 99)
        order = submit_together(installation, {"a": (8, first), "b": (7, second)}, turns)
        live = [job for job in installation._store.recent_jobs(9) if not job.state.is_terminal]
        assert len(live) == 1
        if order not in orders:
            orders.add(order)
            between += 1
        elif between > 1:  # the second server needed no more calls
            before, between = before + 1, 1
        else:  # nor did the first
            break
    assert len(orders) > 15


submissions = st.tuples(st.integers(1, 12), st.sampled_from(LOST))


@settings(max_examples=25, deadline=None)
@given(
    rounds=st.lists(st.tuples(submissions, submissions, st.booleans()), min_size=2, max_size=4),
    turns=st.lists(st.integers(0, 1), max_size=60),
)
def test_two_servers_never_spend_more_than_the_budget(
    rounds: list[tuple[tuple[int, str], tuple[int, str], bool]], turns: list[int]
) -> None:
    installation, remaining = an_installation(), iter(turns)
    for number, (first, second, ends) in enumerate(rounds):
        submit_together(installation, {f"a{number}": first, f"b{number}": second}, remaining)
        live = [job for job in installation._store.recent_jobs(9) if not job.state.is_terminal]
        if ends and live:
            installation.client.cancel(live[0].job_id)
