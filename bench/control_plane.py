"""The real flows of one installation on several threads, as in several function instances.

Events and the requests that follow them are handled side by side. The bus between the functions is
in memory; the store is the caller's. A delivery that fails with a transient error is repeated, as
Pub/Sub repeats it.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from queue import SimpleQueue
from typing import Final

from trainmaster.core.model.vm import Vm
from trainmaster.errors import TemporaryError
from trainmaster.flows.dispatch import handlers_by_topic
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.gcp.addresses import DnsAddresses
from trainmaster.messaging import topics
from trainmaster.messaging.authenticate import AuthDeps
from trainmaster.messaging.push import Message
from trainmaster.ports import Store
from trainmaster_local.memory.bus import MemoryBus
from trainmaster_local.memory.fleet import MemoryFleet

THREADS: Final = 16
"""Messages that are handled at a time."""
REDELIVERY_S: Final = 0.5
"""Time until a delivery that failed is repeated."""
POLL_S: Final = 0.01
"""Pause between two looks of `run` for new messages."""

Delivery = tuple[str, Message]
"""A topic, and a message to its function."""


@dataclass
class ControlPlane:
    """All functions of an installation. With one thread, everything happens in a fixed order."""

    store: Store
    auth: AuthDeps | None = None
    """None: senders are not authenticated."""
    threads: int = THREADS
    limits: Mapping[str, int] = field(default_factory=dict)
    sleep: Callable[[float], None] = time.sleep
    requests: MemoryBus = field(default_factory=MemoryBus)
    """The bus to which flows publish, and from which `run` takes the messages."""
    arrivals: SimpleQueue[Delivery] = field(default_factory=SimpleQueue)
    """Deliveries of messages that agents send while `run` handles others."""
    fleet: MemoryFleet = field(default_factory=MemoryFleet)
    invocations: Counter[str] = field(default_factory=Counter)
    """Deliveries by topic, the failed ones included."""
    failures: int = 0
    """Deliveries that failed with a transient error."""

    def __post_init__(self) -> None:
        self._handlers = handlers_by_topic(
            lambda: self.deps, auth_deps=self.auth, fleet_deps=lambda: self.fleet_deps
        )

    @property
    def deps(self) -> CreationDeps:
        clock = partial(datetime.now, UTC)
        return CreationDeps(
            self.store, self.requests, clock=clock, sleep=self.sleep, limits=dict(self.limits)
        )

    @property
    def fleet_deps(self) -> FleetDeps:
        addresses = DnsAddresses("my-project")
        return FleetDeps(
            self.fleet,
            addresses,
            project="my-project",
            agent_files={"startup-script": "#!"},
            run_all=partial(run_all, self.threads),
        )

    # Deliveries for `run`

    def submit(self, job_id: str, spec: Mapping[str, object], source: str = "") -> Delivery:
        """Return the delivery of a submission.

        `spec`: the job file without its id. `source`: of the submission; empty: an uploaded file.
        """
        data = json.dumps({"jobId": job_id, **spec}).encode()
        attributes = {"source": source or f"gs://bucket/jobs/{job_id}.json#1"}
        return topics.SUBMIT, Message(
            data, attributes, message_id="", published_at=datetime.now(UTC)
        )

    def sweep(self) -> Delivery:
        """Return the delivery of Cloud Scheduler's message, which starts a sweep."""
        return topics.SWEEP, Message(
            b"{}", attributes={}, message_id="", published_at=datetime.now(UTC)
        )

    def vm_ready(self, message: Message) -> Delivery:
        return topics.VM_READY, message

    def replica_exit(self, message: Message) -> Delivery:
        return topics.REPLICA_EXIT, message

    def maintenance(self, message: Message) -> Delivery:
        return topics.MAINTENANCE, message

    def run(self, deliveries: Sequence[Delivery]) -> None:
        """Handle the deliveries, and the requests that follow from them, until none is left."""
        with ThreadPoolExecutor(self.threads) as pool:
            running: list[Future[None]] = [
                pool.submit(self.deliver, *delivery) for delivery in deliveries
            ]
            while running or self.requests.size or not self.arrivals.empty():
                while not self.arrivals.empty():
                    running.append(pool.submit(self.deliver, *self.arrivals.get()))
                running.extend(
                    pool.submit(self.deliver, message.topic, message)
                    for message in self.requests.drain()
                )
                for future in [future for future in running if future.done()]:
                    future.result()
                    running.remove(future)
                time.sleep(POLL_S if running else 0)

    def deliver(self, topic: str, message: Message) -> None:
        """Handle one delivery, and repeat it until it succeeds. The messages that it publishes wait
        for `run`.
        """
        while True:
            self.invocations[topic] += 1
            try:
                self._handlers[topic](message)
            except TemporaryError:
                self.failures += 1
                time.sleep(REDELIVERY_S)
            else:
                return

    def vms(self, job_id: str) -> tuple[Vm, ...]:
        return self.fleet.list_vms(job_id)


def run_all(threads: int, tasks: Sequence[Callable[[], None]]) -> None:
    """Run all tasks to their end, and then raise the first error, as `trainmaster.wiring.fleet`
    does.
    """
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(task) for task in tasks]
    for future in futures:
        future.result()
