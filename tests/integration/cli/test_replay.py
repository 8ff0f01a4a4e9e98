"""A poison message of each kind, on Google's Pub/Sub emulator: into the dead letter, and out again after the fix.

    refused    a release that takes it for one that can never be handled: kept at its first delivery, with the reason
    failing    a release that fails on it: delivered until its attempts are used up, then moved by Pub/Sub itself

Then the fix, and `trainmaster dead-letters replay --all`: each message's job must end as it should. Functions are the
real ones behind real push subscriptions; machines and state are in memory.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import functions_framework
import pytest
from typer.testing import CliRunner
from werkzeug.serving import make_server

from cli.doctor.topic_checks import EVENT_TOPICS
from cli.main import app
from emulators.services import pubsub
from shared.core.model.job import ReplicaState
from shared.core.model.replica_id import ReplicaId
from shared.core.model.tuning import trial_id
from shared.errors import PermanentError
from shared.flows import maintenance, provision, replica_exit, submit, sweep, tune, upload, vm_ready
from shared.gcp.dead_letter_box import DeadLetter, DeadLetterBox
from shared.gcp.pubsub_bus import PubsubBus
from shared.memory.fleet import MemoryFleet
from shared.memory.objects import MemoryObjects
from shared.memory.store import MemoryStore
from shared.messaging import topics
from shared.settings import settings
from shared.wiring import core_services, fleet, objects, suggester
from tests.support.jobs import CHIEF, WORKER_0, a_spec, a_tuning_spec
from tests.support.stack import eventually
from tests.support.world import World

FUNCTIONS: Final = Path(__file__).parents[3] / "functions"
FLOWS: Final = (upload, submit, vm_ready, replica_exit, maintenance, provision, sweep, tune)
KINDS: Final = (
    topics.UPLOAD,
    topics.SUBMIT,
    topics.PROVISION,
    topics.VM_READY,
    topics.MAINTENANCE,
    topics.SYSTEM_EVENTS,
    topics.REPLICA_EXIT,
    topics.SWEEP,
    topics.TUNE,
)
WAYS: Final = ("refused", "failing")
ATTEMPTS: Final = 5
"""The fewest that Pub/Sub takes; the emulator repeats every three seconds."""
WHY: Final = "attempt: this release does not know it"


Letters = dict[tuple[str, str], DeadLetter]
"""By way and kind."""


@dataclass
class Lab:
    project: str
    pubsub: pubsub.PubSub
    bus: PubsubBus
    store: MemoryStore = field(default_factory=MemoryStore)
    fleet: MemoryFleet = field(default_factory=MemoryFleet)
    objects: MemoryObjects = field(default_factory=MemoryObjects)
    deliveries: Counter[str] = field(default_factory=Counter)
    """By topic."""
    deliveries_until_dead: Counter[str] = field(default_factory=Counter)

    def world(self, job_id: str) -> World:
        """For what came before: it publishes to nobody."""
        return World(job_id, store=self.store, fleet=self.fleet)

    @property
    def real(self) -> World:
        return World(store=self.store, fleet=self.fleet, bus=self.bus)  # type: ignore[arg-type]  # another bus


@pytest.fixture(scope="module")
def patched() -> Iterator[pytest.MonkeyPatch]:
    with pytest.MonkeyPatch.context() as patch:
        yield patch
    settings.cache_clear()
    core_services.bus.cache_clear()


@pytest.fixture(scope="module")
def lab(pubsub_emulator: str, patched: pytest.MonkeyPatch) -> Iterator[Lab]:
    project = f"test-{uuid.uuid4().hex[:8]}"
    for name, value in {
        "TRAINMASTER_PROJECT": project,
        "TRAINMASTER_WORKER_SERVICE_ACCOUNT": "",
        "PUBSUB_EMULATOR_HOST": pubsub_emulator,
    }.items():
        patched.setenv(name, value)
    settings.cache_clear()
    core_services.bus.cache_clear()
    lab = Lab(project, pubsub.PubSub(pubsub_emulator, project), core_services.bus())  # type: ignore[arg-type]  # it is one
    patched.setattr(core_services, "deps", lambda: lab.real.deps)
    patched.setattr(fleet, "machines", lambda: lab.real.machines)
    patched.setattr(objects, "objects", lambda: lab.objects)
    patched.setattr(suggester, "suggester", lambda: lab.real.suggester)
    server = make_server("127.0.0.1", 0, door(lab), threaded=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    lab.pubsub.create_topic(topics.DEAD_LETTER)
    lab.pubsub.create_pull(topics.DEAD_LETTER, topics.DEAD_LETTER)
    for topic in KINDS:
        lab.pubsub.create_topic(topic)
        lab.pubsub.create_push(topic, server.server_port, pubsub.Delivery(ATTEMPTS))
    yield lab
    server.shutdown()
    thread.join()
    server.server_close()


def door(lab: Lab) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """All functions behind one port: the topic stands in the address."""
    apps = {}
    for path in FUNCTIONS.glob("[a-z]*.py"):
        apps[pubsub.topic_of(path.stem)] = functions_framework.create_app(path.stem, str(path), "http")
    apps[topics.SYSTEM_EVENTS] = apps[topics.MAINTENANCE]
    for each in apps.values():
        each.config["PROPAGATE_EXCEPTIONS"] = False

    def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        topic = environ["PATH_INFO"].rpartition("/")[2]
        lab.deliveries[topic] += 1
        answer: Iterable[bytes] = apps[topic]({**environ, "PATH_INFO": "/"}, start_response)
        return answer

    return serve


def broken(patched: pytest.MonkeyPatch, error: Exception | None) -> None:
    """Every flow fails like this, in every function. None: the fix."""

    def fail(*_: object) -> None:
        assert error is not None
        raise error

    for flow in FLOWS:
        patched.setattr(flow, "handle", REAL[flow.__name__] if error is None else fail)


REAL: Final = {flow.__name__: flow.handle for flow in FLOWS}


@pytest.fixture(scope="module")
def letters(lab: Lab, patched: pytest.MonkeyPatch) -> Letters:
    messages = {way: {kind: poison(lab, way, kind) for kind in KINDS} for way in WAYS}
    found: Letters = {}
    box = DeadLetterBox(lab.project)
    for way, error in zip(WAYS, (PermanentError(WHY), RuntimeError("a bug")), strict=True):
        broken(patched, error)
        for kind, (data, attributes) in messages[way].items():
            lab.pubsub.publish(kind, data, way=way, **attributes)

        def all_there(way: str = way) -> bool:
            found.update({(each.attributes["way"], each.topic or ""): each for each in box.look()})
            return all((way, kind) in found for kind in KINDS)

        eventually(all_there, within_s=90)
    lab.deliveries_until_dead = lab.deliveries.copy()
    return found


@pytest.fixture(scope="module")
def replayed(lab: Lab, letters: Letters, patched: pytest.MonkeyPatch) -> str:
    broken(patched, None)
    done = CliRunner().invoke(app, ["dead-letters", "replay", "--all"])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_refused_is_kept_at_once_with_its_reason(kind: str, lab: Lab, letters: Letters) -> None:
    assert letters["refused", kind].reason == WHY


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", KINDS)
def test_what_fails_is_moved_within_its_retry_budget(kind: str, lab: Lab, letters: Letters) -> None:
    assert letters["failing", kind].reason == f"not acknowledged by {kind} in all its deliveries"
    assert lab.deliveries_until_dead[kind] == 1 + ATTEMPTS, "once what was refused, and each attempt of what failed"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
def test_a_replay_after_the_fix_completes_the_job(way: str, kind: str, lab: Lab, replayed: str) -> None:
    assert replayed.count(f"({kind})") == len(WAYS)
    world = lab.world(name(way, kind))
    eventually(lambda: has_taken_effect(world, kind))
    if kind == topics.TUNE:
        finish(lab, trial_id(world.job_id, 1), metric={"value": 0.5, "step": 1})
        eventually(lambda: world.state == "SUCCEEDED", within_s=60)
    else:
        finish(lab, world.job_id)


def has_taken_effect(world: World, kind: str) -> bool:
    """What only this message brings about."""
    if world.store.load(trial_id(world.job_id, 1) if kind == topics.TUNE else world.job_id) is None:
        return False
    if kind in {topics.PROVISION, topics.SWEEP}:
        return bool(world.vms)
    if kind == topics.VM_READY:
        return world.replica(CHIEF).state is ReplicaState.RUNNING
    if kind in {topics.MAINTENANCE, topics.SYSTEM_EVENTS}:
        return world.replica(WORKER_0).vm_generation == 2
    return kind != topics.REPLICA_EXIT or world.state == "SUCCEEDED"


def test_every_kind_is_tried() -> None:
    assert set(KINDS) == set(EVENT_TOPICS)


def name(way: str, kind: str) -> str:
    return f"{way}_{kind.replace('-', '_')}"


def poison(lab: Lab, way: str, kind: str) -> tuple[bytes, dict[str, str]]:
    """A message of this kind on which its job depends, and its attributes. The job is as far as that message."""
    world = lab.world(name(way, kind))
    job = json.dumps({"jobId": world.job_id, **a_spec()}).encode()
    if kind not in {topics.UPLOAD, topics.SUBMIT}:
        world.submit(a_tuning_spec(maxTrials=1, maxParallelTrials=1) if kind == topics.TUNE else None)
    if kind not in {topics.UPLOAD, topics.SUBMIT, topics.PROVISION, topics.SWEEP, topics.TUNE}:
        world.deliver()
    if kind in {topics.MAINTENANCE, topics.SYSTEM_EVENTS, topics.REPLICA_EXIT}:
        world.everyone_ready()
    says: dict[str, Callable[[], bytes]] = {
        topics.UPLOAD: lambda: b"{}",
        topics.SUBMIT: lambda: job,
        topics.PROVISION: lambda: json.dumps({"version": 1, "job_id": world.job_id}).encode(),
        topics.SWEEP: lambda: b"{}",
        topics.TUNE: lambda: json.dumps({"version": 1, "job_id": world.job_id}).encode(),
        topics.VM_READY: lambda: subject(world, CHIEF),
        topics.MAINTENANCE: lambda: subject(world, WORKER_0, cause="preemption"),
        topics.SYSTEM_EVENTS: lambda: system_event(world, WORKER_0),
        topics.REPLICA_EXIT: lambda: subject(world, CHIEF, cause="process", exit_status=0),
    }
    return says[kind](), uploaded(lab, world.job_id, job) if kind == topics.UPLOAD else {}


def uploaded(lab: Lab, job_id: str, job: bytes) -> dict[str, str]:
    path = f"jobs/{job_id}.json"
    lab.objects.write(f"gs://bucket/{path}", job, content_type="application/json")
    return {
        "bucketId": "bucket",
        "objectId": path,
        "objectGeneration": str(lab.objects.generation(f"gs://bucket/{path}")),
    }


def subject(world: World, replica_id: ReplicaId, **more: object) -> bytes:
    return json.dumps({**world.subject(replica_id), **more}).encode()


def system_event(world: World, replica_id: ReplicaId) -> bytes:
    vm = world.vm(replica_id)
    assert vm is not None
    payload = {
        "methodName": "compute.instances.preempted",
        "resourceName": f"projects/p/zones/{vm.zone}/instances/{vm.name}",
    }
    resource = {"type": "gce_instance", "labels": {"instance_id": vm.instance_id}}
    return json.dumps({"protoPayload": payload, "resource": resource, "timestamp": world.now.isoformat()}).encode()


def finish(lab: Lab, job_id: str, **more: object) -> None:
    """Machines are there and say so, the chief ends well: then the job has SUCCEEDED, unless something was lost."""
    world = lab.world(job_id)

    def has_run() -> bool:
        loaded = lab.store.load_attempt(job_id)
        if loaded is None or loaded.state.job.state.value == "SUCCEEDED":
            return loaded is not None
        for replica in loaded.state.replicas:
            vm = world.vm(replica.replica_id)
            if replica.state is not ReplicaState.RUNNING and vm and vm.directive:
                lab.pubsub.publish(topics.VM_READY, subject(world, replica.replica_id))
        return all(each.state is ReplicaState.RUNNING for each in loaded.state.replicas)

    eventually(has_run, within_s=60)
    if world.state != "SUCCEEDED":
        lab.pubsub.publish(topics.REPLICA_EXIT, subject(world, CHIEF, cause="process", exit_status=0, **more))
    eventually(lambda: world.state == "SUCCEEDED", within_s=60)
