"""Models of the Google Cloud services that the flows use: the times of calls, and the limits.

`bench.scale.jobs` runs the real flows on it, in virtual time (`World`). The store and the fleet are
those of `trainmaster_local.memory`. Times are assumptions, and limits are those of docs/scale.md,
with their sources.
"""

from __future__ import annotations

import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from bench.counting import Counts, documents, documents_read, documents_written
from bench.scale.virtual_time import Slots, World
from trainmaster.core.model.capacity import Outcome
from trainmaster.core.model.job import Job
from trainmaster.core.model.vm import Directive, LabelledVm, Vm, VmStatus
from trainmaster.core.reconcile.steps import Create
from trainmaster.errors import ConflictError, TemporaryError
from trainmaster.gcp.compute_fleet.listing import PAGE_SIZE
from trainmaster.gcp.firestore.store import NOTED_FOR
from trainmaster.ports import CreateOutcome, Store
from trainmaster_local.memory.bus import MemoryBus, Message
from trainmaster_local.memory.fleet import MemoryFleet
from trainmaster_local.memory.store import MemoryStore

ROOT: Final = Path(__file__).parents[2]
FIRESTORE_S: Final = 0.02
"""Time of a request to Firestore."""
DECODING_S: Final = 0.0005
"""CPU time for the document of one job."""
EVENT_CPU_S: Final = 0.02
"""CPU time of one delivery. An instance has one CPU, which its deliveries share."""
INSERT_S: Final = 15.0
"""From the insert of VMs until they run."""
BOOT_S: Final = (40.0, 70.0)
"""From the insert of a VM to its agent's first report."""
DELETION_S: Final = 30.0
"""From the deletion of a VM until it is gone."""
CALL_S: Final = 0.5
"""Time of a call to Compute Engine that no operation follows."""
CHANGE_S: Final = 1.0
"""Time of a change of a VM, its operation included."""
SETTLE_S: Final = 3.0
"""Time for which a delivery waits for a deletion (`trainmaster.gcp.compute_fleet.fleet`)."""

# Quotas of Compute Engine, per region and minute
CHANGES_MAX: Final = 1_500
READS_MAX: Final = 1_500
EXCLUDED_MAX: Final = 750_000
"""Resources that lists pass over, because their filter excludes them."""
EXCLUDED_FREE: Final = 10_000
"""A list that excludes no more than these does not count against `EXCLUDED_MAX`."""
BACKOFF_S: Final = (1.0, 2.0, 4.0, 8.0, 8.0, 7.0)
"""Waits of the client before it repeats a refused call (`trainmaster.gcp.compute_fleet.errors`)."""
BACKOFF_JITTER: Final = (0.5, 1.0)
"""Smallest and largest factor of such a wait."""
REDELIVERY_S: Final = (1.0, 60.0)
"""Shortest and longest time until Pub/Sub delivers a message again that a function refused. It
doubles with each delivery.
"""
DOUBLINGS_MAX: Final = 10
"""Doublings that are computed: fewer of them exceed the longest time."""
DELIVERIES_MAX: Final = 100
"""Deliveries of one message (infra/modules/event_function)."""
FUNCTION: Final = re.compile(
    r"^ +\w+ += \{ topics = \[(.*?)\].* concurrency = (\d+), max_instances = (\d+)"
)
"""A function's line in infra/functions.tf: topics, deliveries per instance, instances."""
MINUTE_S: Final = 60.0


@dataclass
class Peaks:
    """The largest sums in one second or one minute, and when."""

    span_s: float
    sums: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    largest: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Name → its largest sum, and the virtual time at which that second or minute began."""
    begin_s: float = 0.0

    def add(self, now_s: float, name: str, amount: float) -> None:
        """Add an amount at this virtual time. Times do not decrease."""
        begin_s = now_s // self.span_s * self.span_s
        if begin_s != self.begin_s:
            self.sums.clear()
            self.begin_s = begin_s
        self.sums[name] += amount
        if self.sums[name] > self.largest.get(name, (0.0, 0.0))[0]:
            self.largest[name] = self.sums[name], begin_s


class Firestore:
    """The store in memory: each request takes time, and is counted as Firestore charges it."""

    def __init__(self, world: World) -> None:
        self.memory = MemoryStore()
        self.world = world
        self._noted: dict[tuple[str, str], Outcome] = {}
        self.reset()

    def reset(self) -> None:
        """Count from now on."""
        self.counts = Counts()
        self.conflicts = 0
        self.per_second = Peaks(1.0)
        self.per_minute = Peaks(MINUTE_S)
        """Writes of single documents, by path."""

    @property
    def port(self) -> Store:
        """Return this object as the port: `__getattr__` has the methods, which mypy cannot see."""
        return cast("Store", self)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self.memory, name)

        def call(*args: Any, **options: Any) -> Any:
            self.world.pause(FIRESTORE_S)
            try:
                result = method(*args, **options)
            except ConflictError:
                self.conflicts += 1
                raise
            if isinstance(result, Iterator):
                return self._pages(name, result)
            reads = documents_read(name, args, result)
            self._count(name, reads, documents_written(name, args, result))
            self.counts.deletes += name == "release_lease"  # the only call that deletes a document
            return result

        return call

    def note_outcome(self, outcome: Outcome) -> None:
        """Skip what an instance of the adapter skips. (Here all instances are one.)"""
        noted = self._noted.get(outcome.key)
        if noted and noted.is_created == outcome.is_created and outcome.at - noted.at < NOTED_FOR:
            return
        self._noted[outcome.key] = outcome
        self.__getattr__("note_outcome")(outcome)

    def _pages(self, name: str, pages: Iterator[Any]) -> Iterator[Any]:
        for page in pages:
            self.world.pause(FIRESTORE_S + DECODING_S * len(page.jobs))
            self._count(name, documents(page), written=())
            yield page

    def _count(self, name: str, reads: int, written: Sequence[str]) -> None:
        self.counts.calls[name] += 1
        self.counts.reads_by_call[name] += reads
        self.counts.writes += len(written)
        now_s = self.world.now_s
        self.per_second.add(now_s, "reads", reads)
        self.per_second.add(now_s, "writes", len(written))
        for document in written:
            self.per_minute.add(now_s, document, amount=1)


class RateLimitError(TemporaryError):
    """Compute Engine has refused the call for as long as its client repeats it."""


class Compute(MemoryFleet):
    """VMs in memory: calls take time and use up quotas, and VMs are created and deleted slowly."""

    def __init__(self, world: World) -> None:
        super().__init__(is_slow=True, clock=world.now)
        self.world = world
        self.on_vm: Callable[[str, Vm], None] = lambda *_: None
        """Called with a new VM that runs, and with one that has another directive."""
        self._used: defaultdict[tuple[str, str], float] = defaultdict(float)
        self._minute = 0.0
        self._keys: defaultdict[str, dict[tuple[str, str], None]] = defaultdict(dict)
        """Machine set → keys of its VMs. The fleet in memory would look at all VMs."""
        self._in_region: Counter[str] = Counter()
        self.vms_max = 0
        self.reset()

    def reset(self) -> None:
        """Count from now on."""
        self.per_minute = Peaks(MINUTE_S)
        self.calls: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        """Calls that a quota refused, the repetitions included, by quota."""
        self.failed: Counter[str] = Counter()
        """Calls that were refused until their client gave up."""

    def list_vms(
        self, job_id: str, tpu_zones: Sequence[str] = (), zones: Sequence[str] = ()
    ) -> tuple[Vm, ...]:
        del tpu_zones
        self.calls["listings"] += 1
        keys = self._keys[job_id]
        (job_region,) = {_region(zone) for zone in zones}
        self._use(job_region, "reads", amount=1, limit=READS_MAX)
        # A listing is one of the whole project with a filter: it passes over the VMs of all others.
        for region, vms in list(self._in_region.items()):
            excluded = vms - (len(keys) if region == job_region else 0)
            if excluded > EXCLUDED_FREE:
                self._use(region, "excluded", excluded, EXCLUDED_MAX)
        self.world.pause(CALL_S)
        return tuple(self._vms[key][1] for key in keys)

    def list_all(self, zones: Sequence[str] = ()) -> tuple[LabelledVm, ...]:
        self.calls["listings of all VMs"] += 1
        pages = len(self._vms) // PAGE_SIZE + 1
        for _ in range(pages):
            self.world.pause(CALL_S)
        self._use("all", "reads", pages, READS_MAX)
        return super().list_all(zones)

    def create(self, job: Job, create: Create, metadata: Mapping[str, str]) -> CreateOutcome:
        self.calls["inserts"] += 1
        self._use(_region(create.zone), "changes", amount=1, limit=CHANGES_MAX)
        outcome = super().create(job, create, metadata)
        self.world.pause(INSERT_S)
        for name in create.names:
            key = name, create.zone
            if key in self._vms and self._vms[key][1].status is VmStatus.CREATING:
                self._put(
                    replace(self._vms[key][1], status=VmStatus.RUNNING, started_at=self.world.now())
                )
                self.on_vm(job.job_id, self._vms[key][1])
        return outcome

    def delete(self, vm: Vm) -> bool:
        current = self._current(vm)
        if current is not None and current.status is not VmStatus.STOPPING:
            self.calls["deletions"] += 1
            self._use(_region(vm.zone), "changes", amount=1, limit=CHANGES_MAX)
            super().delete(vm)
            self.world.after(DELETION_S, partial(self._remove, vm))
        self.world.pause(SETTLE_S)
        return self._current(vm) is None

    def write_directive(self, vm: Vm, directive: Directive) -> bool:
        """Two changes: of the metadata, and of the labels."""
        self.calls["directives"] += 1
        region = _region(vm.zone)
        self._use(region, "reads", amount=1, limit=READS_MAX)
        for _ in range(2):
            self._use(region, "changes", amount=1, limit=CHANGES_MAX)
            self.world.pause(CHANGE_S)
        is_written = super().write_directive(vm, directive)
        if is_written:
            owner, written = self._vms[vm.name, vm.zone]
            self.on_vm(owner, written)
        return is_written

    def current(self, vm: Vm) -> Vm | None:
        """Return the VM as it is now; None if it is gone."""
        return self._current(vm)

    def has_vms(self, set_id: str) -> bool:
        return bool(self._keys[set_id])

    def _add_vm(
        self, job: Job, create: Create, name: str, metadata: Mapping[str, str], status: VmStatus
    ) -> None:
        super()._add_vm(job, create, name, metadata, status)
        self._metadata.clear()  # nothing here reads it
        self._keys[job.set_id][name, create.zone] = None
        self._in_region[_region(create.zone)] += 1
        self.vms_max = max(self.vms_max, len(self._vms))

    def _remove(self, vm: Vm) -> None:
        if self._current(vm) is None:
            return
        owner, _ = self._vms.pop((vm.name, vm.zone))
        del self._keys[owner][vm.name, vm.zone]
        self._in_region[_region(vm.zone)] -= 1

    def _use(self, region: str, quota: str, amount: float, limit: float) -> None:
        """Use up a part of a quota. Wait as the client does, if Compute Engine refuses."""
        for wait_s in (*BACKOFF_S, 0.0):
            if self._take(region, quota, amount, limit):
                self.per_minute.add(self.world.now_s, f"{quota} in {region}", amount)
                return
            self.refused[quota] += 1
            self.world.pause(wait_s * random.uniform(*BACKOFF_JITTER))  # noqa: S311 - no secret
        self.failed[quota] += 1
        raise RateLimitError(f"the quota of {quota} in {region} is used up")

    def _take(self, region: str, quota: str, amount: float, limit: float) -> bool:
        """Use up a part of this minute's quota. Return False, and take nothing, if less is left."""
        minute = self.world.now_s // MINUTE_S
        if minute != self._minute:
            self._used.clear()
            self._minute = minute
        key = region, quota
        if self._used[key] + amount > limit:
            return False
        self._used[key] += amount
        return True


def _region(zone: str) -> str:
    return zone.rpartition("-")[0]


@dataclass
class Load:
    """The work of one topic's function so far."""

    deliveries: int = 0
    failures: int = 0
    dead: int = 0
    """Messages that were dropped after `DELIVERIES_MAX` deliveries."""
    late_max_s: float = 0.0
    """The longest time from a message's publication to its first delivery."""


class Functions(MemoryBus):
    """Pub/Sub, and the functions that it calls. A message waits for a free instance."""

    def __init__(self, world: World) -> None:
        super().__init__(world.now)
        self.world = world
        self.loads: defaultdict[str, Load] = defaultdict(Load)
        self.handlers: Mapping[str, Callable[[Message], None]] = {}
        self.slots: dict[str, Slots] = {}
        """Topic → the deliveries that its function can work on at a time."""
        self._instances: dict[str, int] = {}
        for names, places, instances in functions():
            for topic in names:
                self.slots[topic] = Slots(world, places)
                self._instances[topic] = instances
        self._cpu_free_at_s: defaultdict[str, float] = defaultdict(float)
        """Topic → the virtual time at which the CPUs of its function will have done the work of all
        deliveries that have begun.
        """

    def _append(self, message: Message) -> None:
        self._deliver(message, self.world.now_s, number=1)

    def _deliver(self, message: Message, published_s: float, number: int) -> None:
        self.slots[message.topic].start(partial(self._handle, message, published_s, number))

    def _compute(self, topic: str) -> None:
        """Wait for the CPU time of one delivery."""
        now_s = self.world.now_s
        begin_s = max(now_s, self._cpu_free_at_s[topic])
        self._cpu_free_at_s[topic] = begin_s + EVENT_CPU_S / self._instances[topic]
        self.world.pause(begin_s + EVENT_CPU_S - now_s)

    def _handle(self, message: Message, published_s: float, number: int) -> None:
        load = self.loads[message.topic]
        load.deliveries += 1
        if number == 1:
            load.late_max_s = max(load.late_max_s, self.world.now_s - published_s)
        self._compute(message.topic)
        try:
            self.handlers[message.topic](message)
        except TemporaryError:
            load.failures += 1
            if number == DELIVERIES_MAX:
                load.dead += 1
                return
            shortest_s, longest_s = REDELIVERY_S
            doublings = min(number - 1, DOUBLINGS_MAX)
            delay_s = min(longest_s, shortest_s * 2.0**doublings)
            self.world.after(delay_s, partial(self._deliver, message, published_s, number + 1))


def functions() -> Iterator[tuple[list[str], int, int]]:
    """Yield topics, deliveries at a time, and instances of each function of the installation."""
    for line in (ROOT / "infra" / "functions.tf").read_text(encoding="utf-8").splitlines():
        if found := FUNCTION.match(line):
            names, concurrency, instances = found.groups()
            topics_of = [f"trainmaster-{name}" for name in re.findall(r"\w[\w-]*", names)]
            yield topics_of, int(concurrency) * int(instances), int(instances)
