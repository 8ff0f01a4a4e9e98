"""Consoles with many jobs, many replicas and many trials, on adapters in memory."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from flask.testing import FlaskClient

from bench.jobs import job_spec
from tests.support.metrics import FakeMetrics
from tests.support.world import FixedAddresses
from trainmaster.console.actions import Actions
from trainmaster.console.caches import LedgerCache
from trainmaster.console.job_counter import JobCounter
from trainmaster.console.pages.log_window import LogQuery
from trainmaster.console.pages.service import Console
from trainmaster.console.sign_in import LoopbackSignIn
from trainmaster.console.web import create_app
from trainmaster.core.model.job import tuning_of
from trainmaster.core.model.tuning import Measurement, Trial, TrialState
from trainmaster.core.model.vm import Vm
from trainmaster.core.model.vm_names import vm_name
from trainmaster.flows.dispatch import handlers_by_topic
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.messaging import internal_requests, topics
from trainmaster.messaging.push import Message
from trainmaster.ports import Loaded
from trainmaster_local.memory.bus import MemoryBus
from trainmaster_local.memory.fleet import MemoryFleet
from trainmaster_local.memory.store import MemoryStore

HOST: Final = "127.0.0.1:8080"
START: Final = datetime(2026, 11, 21, 3, 0, tzinfo=UTC)
SEED: Final = 7
LINES: Final = 1_000
"""Number of lines that one page of a log shows."""
_BEFORE: Final = re.compile(r'insertId<"line(\d+)"')


class TrialsStore(MemoryStore):
    """A store whose tuning job has trials that were never run."""

    trials: tuple[Trial, ...] = ()

    def load(self, job_id: str, replica: str | None = None) -> Loaded | None:
        loaded = super().load(job_id, replica)
        if loaded is None or loaded.state.job.tuning is None:
            return loaded
        job = loaded.state.job
        job = replace(job, tuning=replace(tuning_of(job), trials=self.trials))
        return replace(loaded, state=replace(loaded.state, job=job))


def _run_in_sequence(tasks: Sequence[Callable[[], None]]) -> None:
    for task in tasks:
        task()


def _entry(number: int) -> dict[str, object]:
    at = START + timedelta(microseconds=1_100 * number)
    return {
        "timestamp": f"{at:%Y-%m-%dT%H:%M:%S.%f}Z",
        "insertId": f"line{number:09d}",
        "severity": "INFO",
        "labels": {"ml.googleapis.com/task_name": f"worker-replica-{number % 8}"},
        "textPayload": (
            f"step {number}: loss = {1 / (1 + number):.6f}, accuracy = {number / (1 + number):.6f}"
        ),
    }


@dataclass
class SyntheticLog:
    """A log of eight replicas.

    It answers queries for the end of the log, and for the lines before a given line.
    """

    lines: int = LINES
    growth: int = 0
    """Lines that are added before each reading of the newest ones."""

    def read(self, query: LogQuery) -> tuple[list[dict[str, object]], str]:
        before = _BEFORE.search(query.filter)
        if before is None:
            self.lines += self.growth
        end = int(before[1]) if before else self.lines
        begin = max(end - LINES, 0)
        return [_entry(number) for number in reversed(range(begin, end))], "more" if begin else ""


@dataclass
class LargeConsole:
    """A console, and a signed-in client of its application.

    Unlike a `Site`, it has thousands of jobs and replicas.
    """

    store: MemoryStore = field(default_factory=TrialsStore)
    now: datetime = START
    log: SyntheticLog = field(default_factory=SyntheticLog)
    count_wait_s: float | None = None
    """How long a page waits for the numbers of jobs; None: until they are known."""

    def __post_init__(self) -> None:
        self.fleet = MemoryFleet(clock=lambda: self.now)
        self.deps = CreationDeps(
            self.store, MemoryBus(), clock=lambda: self.now, sleep=lambda _: None
        )
        fleet_deps = FleetDeps(
            self.fleet, FixedAddresses(), "my-project", agent_files={}, run_all=_run_in_sequence
        )
        self._handlers = handlers_by_topic(
            lambda: self.deps, auth_deps=None, fleet_deps=lambda: fleet_deps
        )
        self.sign_in = LoopbackSignIn("anna@example.com", (HOST,))
        self.restart()

    def restart(self) -> None:
        """Start another instance of the application: its caches are empty."""
        console = Console(
            project="my-project",
            store=self.store,
            ledgers=LedgerCache(self.store),
            counter=JobCounter(self.store, self.count_wait_s),
            read_log=self.log.read,
            metrics=FakeMetrics(),
            address_book=FixedAddresses(),
            clock=lambda: self.now,
            limits={},
            ml_unit_price=None,
            actions=Actions(lambda: self.deps),
        )
        self.sign_in = LoopbackSignIn("anna@example.com", self.sign_in.hosts)
        self.app = create_app(console, self.sign_in)
        self.client: FlaskClient = self.app.test_client()
        self.client.get(f"/?token={self.sign_in.token}", base_url=f"http://{self.sign_in.hosts[0]}")

    def get(self, path: str, **headers: str) -> tuple[int, bytes, Mapping[str, str]]:
        response = self.client.get(
            path, base_url=f"http://{self.sign_in.hosts[0]}", headers=headers
        )
        return response.status_code, response.data, dict(response.headers)

    def submit(self, job_id: str, spec: Mapping[str, object]) -> None:
        self.now += timedelta(seconds=1)
        data = json.dumps({"jobId": job_id, **spec}).encode()
        self._handle(topics.SUBMIT, data, source=f"bench:{job_id}")

    def run(self, job_id: str, replicas: int, incidents: int) -> None:
        """Submit a job and let all of its replicas run.

        `incidents`: number of failures of one replica, of which each restarts all of them.
        """
        self.submit(job_id, job_spec(replicas))
        self._provision(job_id)
        loaded = self.store.load_attempt(job_id)
        if loaded is None:
            raise LookupError(job_id)
        ids = [replica.replica_id for replica in loaded.state.replicas]
        names = {vm_name(job_id, replica_id) for replica_id in ids}
        self._send(job_id, names, exits=False)
        for number in range(incidents):
            self.now += timedelta(seconds=20)
            self._send(job_id, {vm_name(job_id, ids[1 + number % (len(ids) - 1)])}, exits=True)
            self._provision(job_id)
            self._send(job_id, names, exits=False)
            self._provision(job_id)
        self.now += timedelta(hours=1)

    def _provision(self, job_id: str) -> None:
        request = internal_requests.ProvisionRequest(job_id)
        self._handle(topics.PROVISION, internal_requests.encode_provision(request))

    def _handle(self, topic: str, data: bytes, **attributes: str) -> None:
        """Deliver a message that was published now."""
        self._handlers[topic](Message(data, attributes, message_id="", published_at=self.now))

    def _send(self, job_id: str, names: Collection[str], *, exits: bool) -> None:
        for vm in self.fleet.list_vms(job_id):
            if vm.name in names:
                self.now += timedelta(milliseconds=5)
                self._send_about(job_id, vm, exits=exits)

    def _send_about(self, job_id: str, vm: Vm, *, exits: bool) -> None:
        task_type, index = vm.replica_id.task_type, vm.replica_id.index
        if vm.directive is None:
            raise LookupError(f"{vm.name} has no directive")
        message = {
            "version": 1,
            "job_id": job_id,
            "attempt": vm.directive.attempt,
            "task_type": task_type,
            "task_index": index,
            "incarnation": vm.directive.incarnation,
            "vm_generation": vm.vm_generation,
            "vm": {"name": vm.name, "zone": vm.zone, "instance_id": vm.instance_id},
            "at": self.now.isoformat(),
        }
        if exits:
            exit_message = {**message, "cause": "process", "exit_status": 1}
            self._handle(topics.REPLICA_EXIT, json.dumps(exit_message).encode())
        else:
            self._handle(topics.VM_READY, json.dumps(message).encode())

    def tune(self, job_id: str, trials: int, parameters: int) -> None:
        """Submit a tuning job, and give it trials with values."""
        params = [
            {"parameterName": f"p{number}", "type": "DOUBLE", "minValue": 0.0, "maxValue": 1.0}
            for number in range(parameters)
        ]
        hyperparameters = {
            "goal": "MAXIMIZE",
            "params": params,
            "maxTrials": trials,
            "maxParallelTrials": 4,
        }
        spec = job_spec(1)
        training = spec["trainingInput"]
        if not isinstance(training, dict):
            raise TypeError("a job file has a trainingInput")
        self.submit(job_id, {"trainingInput": {**training, "hyperparameters": hyperparameters}})
        chance = random.Random(SEED)  # noqa: S311 - values of a plot
        TrialsStore.trials = tuple(
            Trial(
                number,
                tuple(f"{chance.random():.6f}" for _ in range(parameters)),
                TrialState.SUCCEEDED,
                self.now,
                self.now + timedelta(minutes=5),
                Measurement(chance.random(), 100),
            )
            for number in range(1, trials + 1)
        )
