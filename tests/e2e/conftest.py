"""One local stack for all end-to-end tests, and `Lab`, which submits jobs to it and
inspects them.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import psutil
import pytest
import yaml

from tests.integration.agent.support.packages import wheel_of
from tests.support.stack import LocalStack
from trainmaster.client import package_staging
from trainmaster.core.events import CancelRequested
from trainmaster.core.ledger import LedgerEntry, fold
from trainmaster.core.model.job import State
from trainmaster.core.model.replica import Replica
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.vm import Vm
from trainmaster.core.model.vm_names import vm_name
from trainmaster.flows.commit.record import record
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.gcp import clients
from trainmaster.gcp.compute_fleet import ComputeFleet
from trainmaster.gcp.firestore.store import FirestoreStore
from trainmaster.gcp.storage_objects import StorageObjects
from trainmaster.gcp.vm_defaults import VmDefaults
from trainmaster.ports import Bus, Fleet, Objects, Store
from trainmaster_emulators.checkout import ROOT
from trainmaster_emulators.services.fault_client import FaultClient
from trainmaster_emulators.services.pubsub import PubSub


@dataclass(frozen=True)
class StackBus:
    """The port `Bus` on the stack's Pub/Sub emulator."""

    pubsub: PubSub

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        self.pubsub.publish(topic, data, **attributes)

    def publish_all(self, topic: str, messages: Sequence[bytes]) -> None:
        for data in messages:
            self.publish(topic, data, {})


SCRIPTED = Path(__file__).parent / "scripted"
WHEEL = "packages/scripted/scripted_trainer-0.1-py3-none-any.whl"
POLL_S = 0.2
SLOWDOWN_MAX = 3
MANY_STEPS = 100_000
"""More steps than a job takes in any test: the test cancels it or calls `Lab.finish`."""


@cache
def scripted_wheel() -> bytes:
    """Return the scripted trainer as a wheel, which VMs install faster than a source
    distribution.
    """
    files = {
        f"trainer/{path.name}": path.read_text() for path in (SCRIPTED / "trainer").glob("*.py")
    }
    return wheel_of("scripted_trainer", files)


@cache
def sdist(trainer: str, folder: Path) -> Path:
    [archive] = package_staging.build(ROOT / "examples" / trainer / "trainer", folder / trainer)
    return archive


@dataclass(frozen=True)
class Lab:
    stack: LocalStack
    store: Store
    fleet: Fleet
    objects: Objects
    bus: Bus
    packages: Path

    @property
    def bucket(self) -> str:
        return self.stack.state.config.bucket

    @property
    def faults(self) -> FaultClient:
        return FaultClient(self.stack.state)

    @contextmanager
    def stopped(self, *services: str, and_then: signal.Signals) -> Iterator[None]:
        """Stop the processes of these services, so that they answer nothing, and send them a signal
        afterwards.
        """
        processes: list[psutil.Process] = []
        for name in services:
            main = psutil.Process(self.stack.state.services[name].pid)
            processes += [main, *main.children(recursive=True)]
        try:
            for process in processes:
                process.send_signal(signal.SIGSTOP)
            yield
        finally:
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(and_then)

    def example(self, name: str, **changes: object) -> str:
        """Submit an example's job file with `changes` to its trainingInput; return the job id."""
        spec = yaml.safe_load((ROOT / "examples" / name / "job.yaml").read_text())
        [uri] = spec["trainingInput"]["packageUris"]
        self._put_package(uri, sdist(uri.split("/")[4], self.packages).read_bytes())
        spec["trainingInput"].update(changes)
        return self.upload(spec, name)

    def scripted(
        self, *, workers: int = 2, steps: int = 5, step_s: float = 0.1, **changes: object
    ) -> str:
        """Submit a job of the scripted trainer, which needs no framework; return the job id."""
        return self.upload(
            self.scripted_spec(workers=workers, steps=steps, step_s=step_s, **changes), "scripted"
        )

    def scripted_spec(
        self, *, workers: int = 2, steps: int = 5, step_s: float = 0.1, **changes: object
    ) -> dict[str, object]:
        """Upload the scripted trainer's package and return a job file for it.

        `changes`: fields of its training input, or the field `trainmaster` of the job file.
        """
        spec: dict[str, object] = {
            "scaleTier": "CUSTOM",
            "masterType": "n1-standard-4",
            "packageUris": [self.wheel()],
            "pythonModule": "trainer.task",
            "args": ["--steps", str(steps), "--step-seconds", str(step_s)],
            "jobDir": f"gs://{self.bucket}/scripted",
            "region": "us-central1",
            "runtimeVersion": "scikit-learn-1.9",
        }
        if workers:
            spec |= {"workerType": "n1-standard-4", "workerCount": workers}
        spec |= changes
        extension = spec.pop("trainmaster", None)
        if not extension:
            return {"trainingInput": spec}
        return {"trainingInput": spec, "trainmaster": extension}

    def wheel(self) -> str:
        """Upload the scripted trainer's wheel and return its URI."""
        uri = f"gs://{self.bucket}/{WHEEL}"
        self._put_package(uri, scripted_wheel())
        return uri

    def _put_package(self, uri: str, content: bytes) -> None:
        """Upload a package once.

        The emulator keeps no earlier generations, which jobs that still run may need.
        """
        if self.objects.generation(uri) is None:
            self.objects.write(uri, content, content_type="application/octet-stream")

    def upload(self, spec: object, name: str) -> str:
        """Upload a job file and return the id of its job."""
        uri = f"gs://{self.bucket}/jobs/{name}_{uuid.uuid4().hex[:8]}.yaml"
        self.objects.write(uri, yaml.safe_dump(spec).encode(), content_type="text/yaml")
        job_ids: list[str] = []

        def has_become_a_job() -> bool:
            job_ids.extend(
                job.job_id for job in self.store.recent_jobs(20) if job.submission.startswith(uri)
            )
            return bool(job_ids)

        self.until(has_become_a_job, 20)
        return job_ids[0]

    def until(self, is_so: Callable[[], object], within_s: float) -> None:
        """Wait until the condition holds: `within_s` on an idle machine, SLOWDOWN_MAX times as long
        at most.
        """
        deadline = time.monotonic() + SLOWDOWN_MAX * within_s
        while not is_so():
            assert time.monotonic() < deadline, (
                f"condition not met within {SLOWDOWN_MAX} times {within_s:g} s"
            )
            time.sleep(POLL_S)

    def wait_for_programs(self, job_id: str, within_s: float = 60) -> None:
        """Wait until the job is RUNNING and so are all of its programs, whose directives follow."""
        self.wait(job_id, "RUNNING", within_s)
        for vm in self.fleet.list_vms(job_id):
            self.until(lambda name=vm.name: self.faults.processes(name)["program"], 20)  # type: ignore[misc]

    def wait(self, job_id: str, word: str, within_s: float = 60) -> State:
        """Wait for a job state.

        Another terminal state fails at once, with the job's error message.
        """

        def is_so() -> bool:
            job = self.state(job_id).job
            assert not job.state.is_terminal or job.state == word, (
                f"{job.state}: {job.error_message}\n{self.story(job_id)}"
            )
            return job.state == word

        self.until(is_so, within_s)
        return self.state(job_id)

    def finish(self, job_id: str) -> None:
        """Make the scripted trainers of the job exit with status 0 after their current step.

        Tests that inject a fault give the job many steps and call this afterwards: on a busy
        machine, a job with few steps could end before the fault is judged.
        """
        for vm in self.fleet.list_vms(job_id):
            (self.stack.state_dir / "compute" / "vms" / vm.instance_id / "home" / "finish").touch()

    def cancel(self, job_id: str) -> None:
        """Cancel the job and wait until its VMs are gone."""
        deps = CreationDeps(self.store, self.bus, clock=lambda: datetime.now(UTC), sleep=time.sleep)
        record(CancelRequested(job_id, "the test", datetime.now(UTC)), deps)
        self.until(lambda: not self.fleet.list_vms(job_id), 30)

    def wait_for_success(self, job_id: str, within_s: float = 60) -> State:
        """Wait for SUCCEEDED, no VMs and no pending effects.

        The ledger's fold must equal the stored state.
        """
        self.wait(job_id, "SUCCEEDED", within_s)
        self.until(lambda: not self.fleet.list_vms(job_id), 30)
        self.until(lambda: not self.store.pending_keys(job_id), 30)
        state = self.state(job_id)
        assert fold(self.store.ledger(job_id)) == state
        return state

    def state(self, job_id: str) -> State:
        loaded = self.store.load_attempt(job_id)
        assert loaded is not None
        return loaded.state

    def replica(self, job_id: str, replica_id: ReplicaId) -> Replica:
        return next(
            replica for replica in self.state(job_id).replicas if replica.replica_id == replica_id
        )

    def vm(self, job_id: str, replica_id: ReplicaId) -> Vm:
        return next(
            vm for vm in self.fleet.list_vms(job_id) if vm.name == vm_name(job_id, replica_id)
        )

    def console(self, job_id: str, replica_id: ReplicaId) -> str:
        return self.fleet.serial_output(self.vm(job_id, replica_id), 0)[0]

    def story(self, job_id: str) -> str:
        return "\n".join(
            f"{entry.key}: {entry.decision.text}" for entry in self.store.ledger(job_id)
        )

    def decisions(self, job_id: str) -> list[LedgerEntry]:
        return [
            entry for entry in self.store.ledger(job_id) if entry.decision.action.kind != "ignore"
        ]


@contextmanager
def lab_on(stack: LocalStack, packages: Path) -> Iterator[Lab]:
    environment = stack.environment
    with pytest.MonkeyPatch.context() as patch:
        for name in ("FIRESTORE_EMULATOR_HOST", "STORAGE_EMULATOR_HOST"):
            patch.setenv(name, environment[name])
        store = FirestoreStore(clients.firestore_client(stack.state.config.project))
        objects = StorageObjects(clients.storage_client())
    fleet = ComputeFleet(
        VmDefaults(stack.state.config.project),
        endpoint=environment["TRAINMASTER_COMPUTE_ENDPOINT"],
        wait_s=1.0,
    )
    yield Lab(stack, store, fleet, objects, StackBus(stack.pubsub), packages)
    fleet.close()
    store.close()
    objects.close()


@pytest.fixture(scope="session")
def lab(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A local stack for the whole session, with clients of its services."""
    with lab_on(stack, tmp_path_factory.mktemp("packages")) as lab:
        yield lab
