"""Time, the instances of the functions, and Compute Engine's quotas."""

from __future__ import annotations

import heapq
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

from bench.scale.scenario import MINUTE, Scenario, Usage
from trainmaster.errors import TemporaryError

START: Final = datetime(2026, 11, 22, tzinfo=UTC)
COMPUTE_CALL_S: Final = 1.0
"""Duration of a change or a listing of Compute Engine (assumed)."""
REFUSED_S: Final = 30.0
"""How long the client repeats a change that the rate limit refuses (`trainmaster.gcp.retries.FLEET_CALL_S`)."""
REFUSED_LIST_S: Final = 15.0
"""The same for a list (`trainmaster.gcp.retries.FLEET_READ_S`)."""
STEPS_IN_PARALLEL: Final = 24
BACKOFF_S: Final = (1.0, 60.0)
"""Bounds of the time until a redelivery, as infra/ sets them."""
INSTANCES: Final = {"submit": 80, "vm_ready": 320, "replica_exit": 320, "provision": 80, "sweep": 1}
"""Deliveries at a time: instances times concurrency, as infra/functions.tf sets them."""


class Cloud:
    """Virtual time, the functions' instances, and the quotas. Deliveries run one after another in real time."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.usage = Usage()
        self.rng = random.Random(scenario.seed)  # noqa: S311 - reproducible
        self.now = 0.0
        self.spent = 0.0
        """How long the current delivery has taken."""
        self._planned: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self._busy: Counter[str] = Counter()
        self._waiting: dict[str, list[Callable[[], None]]] = {name: [] for name in INSTANCES}
        self._changes: Counter[tuple[int, int]] = Counter()
        self._excluded: Counter[tuple[int, int]] = Counter()
        """By region and minute, as the changes."""

    def clock(self) -> datetime:
        return START + timedelta(seconds=self.now + self.spent)

    def spend(self, seconds: float) -> None:
        self.spent += seconds

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._count += 1
        heapq.heappush(self._planned, (self.now + seconds, self._count, action))

    def run(self, is_over: Callable[[], bool]) -> None:
        while self._planned and not is_over():
            at, _, action = heapq.heappop(self._planned)
            self.now = at
            action()

    def deliver(self, function: str, handle: Callable[[], object], attempt: int = 0) -> None:
        """Run a delivery if an instance is free. Its effects are immediate; the instance then stays busy for a time."""
        if self._busy[function] >= INSTANCES[function]:
            self._waiting[function].append(partial(self.deliver, function, handle, attempt))
            return
        self._busy[function] += 1
        self.spent = 0.0
        self.usage.add(f"invocations of {function}", self.now)
        try:
            handle()
        except TemporaryError:
            backoff_s = min(BACKOFF_S[0] * 2**attempt, BACKOFF_S[1])
            self.after(self.spent + backoff_s, partial(self.deliver, function, handle, attempt + 1))
            self.usage.add(f"redeliveries of {function}", self.now)
        self.usage.deliveries_max_s = max(self.usage.deliveries_max_s, self.spent)
        self.after(self.spent, partial(self._end, function))
        self.spent = 0.0

    def _end(self, function: str) -> None:
        self._busy[function] -= 1
        if self._waiting[function]:
            self._waiting[function].pop(0)()

    def change(self, region: int) -> None:
        """Spend the time of one change of a VM. Raises TemporaryError if the region's quota refuses it for too long."""
        at = self.now + self.spent
        minute = int(at // MINUTE)
        if self._changes[region, minute] >= self.scenario.changes_per_minute:
            minute += 1
            refill_s = minute * MINUTE - at
            if refill_s > REFUSED_S or self._changes[region, minute] >= self.scenario.changes_per_minute:
                self.spend(REFUSED_S)
                self.usage.refused += 1
                raise TemporaryError("rateLimitExceeded")
            self.spend(refill_s)
        self._changes[region, minute] += 1
        self.usage.add("Compute changes", minute * MINUTE)
        self.spend(COMPUTE_CALL_S)

    def exclude(self, region: int, vms: int) -> None:
        """Charge a list whose filter excludes this many VMs. Raises TemporaryError if the region's limit refuses it."""
        if vms <= self.scenario.excluded_free:
            return
        minute = int((self.now + self.spent) // MINUTE)
        if self._excluded[region, minute] + vms > self.scenario.excluded_per_minute:
            self.spend(REFUSED_LIST_S)
            self.usage.refused_lists += 1
            raise TemporaryError("quotaExceeded")
        self._excluded[region, minute] += vms
        self.usage.add("VMs excluded by filters", minute * MINUTE, vms)

    def run_in_waves(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Run the tasks as `STEPS_IN_PARALLEL` threads would, and raise the first error at the end."""
        errors = []
        for first in range(0, len(tasks), STEPS_IN_PARALLEL):
            began, ended = self.spent, self.spent
            for task in tasks[first : first + STEPS_IN_PARALLEL]:
                self.spent = began
                try:
                    task()
                except TemporaryError as error:
                    errors.append(error)
                ended = max(ended, self.spent)
            self.spent = ended
        if errors:
            raise errors[0]
