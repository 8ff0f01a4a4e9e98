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
from typing import Any, Final

from trainmaster.core.model.vm import Vm
from trainmaster.errors import TemporaryError
from trainmaster.flows import maintenance, provision, replica_exit, submit, sweep, vm_ready
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.gcp.addresses import DnsAddresses
from trainmaster.memory.bus import MemoryBus
from trainmaster.memory.fleet import MemoryFleet
from trainmaster.messaging import agent_messages, google_events, internal_requests, topics
from trainmaster.messaging.authenticate import (
    AuthDeps,
    Authenticated,
    authenticate,
    authenticate_loss,
)
from trainmaster.messaging.push import Message
from trainmaster.ports import Store

THREADS: Final = 16
REDELIVERY_S: Final = 0.5
POLL_S: Final = 0.01

Delivery = tuple[str, Callable[[], object]]
"""Name of a function, and its call."""


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
    """Where flows publish, and from which `run` takes the messages."""
    arrivals: SimpleQueue[Delivery] = field(default_factory=SimpleQueue)
    """Deliveries of messages that agents send while `run` handles others."""
    fleet: MemoryFleet = field(default_factory=MemoryFleet)
    invocations: Counter[str] = field(default_factory=Counter)
    """Deliveries by function, the failed ones included."""
    failures: int = 0
    """Deliveries that failed with a transient error."""

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
            "my-project",
            {"startup-script": "#!"},
            partial(run_all, self.threads),
        )

    def submit(self, job_id: str, spec: Mapping[str, object]) -> Delivery:
        data = json.dumps({"jobId": job_id, **spec}).encode()
        return "submit", lambda: submit.handle(data, f"gs://bucket/jobs/{job_id}.json#1", self.deps)

    def sweep(self) -> Delivery:
        return "sweep", lambda: sweep.handle(self.deps)

    def vm_ready(self, message: Message) -> Delivery:
        return "vm_ready", partial(
            self._report, agent_messages.decode_vm_ready, vm_ready.handle, message
        )

    def replica_exit(self, message: Message) -> Delivery:
        return "replica_exit", partial(
            self._report, agent_messages.decode_replica_exit, replica_exit.handle, message
        )

    def _report(
        self, decode: Callable[..., Any], flow: Callable[..., object], message: Message
    ) -> None:
        event = decode(message.data, message.published_at)
        authenticated = (
            authenticate(event.subject, message, self.auth) if self.auth else Authenticated()
        )
        flow(event, self.deps, authenticated.loaded)

    def maintenance(self, message: Message) -> Delivery:
        def handle() -> None:
            event = google_events.decode_maintenance(message.data, message.published_at)
            authenticated = (
                authenticate_loss(event, message, self.auth) if self.auth else Authenticated()
            )
            maintenance.handle(event, self.deps, authenticated.loaded)

        return "maintenance", handle

    def run(self, deliveries: Sequence[Delivery]) -> None:
        """Handle the deliveries, and the requests that follow from them, until none is left."""
        with ThreadPoolExecutor(self.threads) as pool:
            running: list[Future[None]] = [
                pool.submit(self._repeat, *delivery) for delivery in deliveries
            ]
            while running or self.requests.size or not self.arrivals.empty():
                while not self.arrivals.empty():
                    running.append(pool.submit(self._repeat, *self.arrivals.get()))
                for message in self.requests.drain():
                    request = internal_requests.decode_provision(message.data)
                    handle = partial(provision.handle, request, self.fleet_deps, self.deps)
                    running.append(
                        pool.submit(self._repeat, message.topic.removeprefix(PREFIX), handle)
                    )
                for future in [future for future in running if future.done()]:
                    future.result()
                    running.remove(future)
                time.sleep(POLL_S if running else 0)

    def _repeat(self, function: str, handle: Callable[[], object]) -> None:
        while True:
            self.invocations[function] += 1
            try:
                handle()
            except TemporaryError:
                self.failures += 1
                time.sleep(REDELIVERY_S)
            else:
                return

    def vms(self, job_id: str) -> tuple[Vm, ...]:
        return self.fleet.list_vms(job_id)


PREFIX: Final = topics.PROVISION.removesuffix("provision")


def run_all(threads: int, tasks: Sequence[Callable[[], None]]) -> None:
    """Run all tasks to their end, and then raise the first error, as `trainmaster.wiring.fleet`
    does.
    """
    with ThreadPoolExecutor(threads) as pool:
        futures = [pool.submit(task) for task in tasks]
    for future in futures:
        future.result()
