"""A message of each kind becomes a dead letter on Google's Pub/Sub emulator, and is replayed after
the fix.

    refused    the release raises PermanentError: the function keeps the message at its first
               delivery, with the reason
    failing    the release raises another error: Pub/Sub moves the message after its delivery
               attempts

After the fix, `trainmaster dead-letters replay --all` must let every message's job succeed. The
functions are the real ones, behind real push subscriptions; VMs and state are in memory.
"""

from __future__ import annotations

import json
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

from tests.support.jobs import CHIEF, WORKER_0, a_spec, a_tuning_spec
from tests.support.serving import serving
from tests.support.stack import eventually
from tests.support.world import World
from trainmaster.cli.doctor.topic_checks import EVENT_TOPICS
from trainmaster.cli.main import app
from trainmaster.core.model.replica import ReplicaState
from trainmaster.core.model.replica_id import ReplicaId
from trainmaster.core.model.tuning import trial_id
from trainmaster.errors import PermanentError
from trainmaster.flows import (
    maintenance,
    provision,
    replica_exit,
    submit,
    sweep,
    tune,
    upload,
    vm_ready,
)
from trainmaster.gcp.pubsub_bus import PubsubBus
from trainmaster.gcp.tools import dead_letter_box
from trainmaster.gcp.tools.dead_letter_box import DeadLetter, DeadLetterBox
from trainmaster.messaging import topics
from trainmaster.settings import settings
from trainmaster.suggesters import optuna_suggester
from trainmaster.wiring import core_services, fleet, intake_deps, objects
from trainmaster_emulators.services import pubsub
from trainmaster_local.memory.fleet import MemoryFleet
from trainmaster_local.memory.objects import MemoryObjects
from trainmaster_local.memory.store import MemoryStore

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
OUTCOMES: Final = ("refused", "failing")
ATTEMPTS: Final = 5
"""The smallest number that Pub/Sub accepts. The emulator redelivers every three seconds."""
REASON: Final = "attempt: this release does not know it"


Letters = dict[tuple[str, str], DeadLetter]
"""By outcome and topic."""


@dataclass
class Lab:
    """A project on the emulator, whose functions use state and VMs in memory."""

    project: str
    pubsub: pubsub.PubSub
    bus: PubsubBus
    store: MemoryStore = field(default_factory=MemoryStore)
    fleet: MemoryFleet = field(default_factory=MemoryFleet)
    objects: MemoryObjects = field(default_factory=MemoryObjects)
    deliveries: Counter[str] = field(default_factory=Counter)
    """Number of deliveries, by topic."""
    deliveries_until_dead: Counter[str] = field(default_factory=Counter)
    """The same, when all messages had become dead letters."""

    def world(self, job_id: str) -> World:
        """A world for the preparation of a job: its messages are not published to the emulator."""
        return World(job_id, store=self.store, fleet=self.fleet)

    @property
    def published_world(self) -> World:
        """The world of the functions: its messages are published to the emulator."""
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
    patched.setattr(core_services, "deps", lambda: lab.published_world.deps)
    patched.setattr(core_services, "creation_deps", lambda: lab.published_world.deps)
    patched.setattr(intake_deps, "intake_deps", lambda: lab.published_world.deps)
    patched.setattr(fleet, "fleet_deps", lambda: lab.published_world.fleet_deps)
    patched.setattr(fleet, "provision_deps", lambda: lab.published_world.deps)
    patched.setattr(objects, "objects", lambda *_: lab.objects)
    patched.setattr(optuna_suggester, "OptunaSuggester", lambda: lab.published_world.suggester)
    server = make_server("127.0.0.1", 0, all_functions(lab), threaded=True)
    with serving(server):
        lab.pubsub.create_topic(topics.DEAD_LETTER)
        lab.pubsub.create_pull(topics.DEAD_LETTER, topics.DEAD_LETTER)
        for topic in KINDS:
            lab.pubsub.create_topic(topic)
            lab.pubsub.create_push(topic, server.server_port, pubsub.Delivery(ATTEMPTS))
        yield lab


def all_functions(lab: Lab) -> Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]:
    """Return one WSGI application for all functions. The path of a request ends with the topic."""
    apps = {}
    for path in FUNCTIONS.glob("[a-z]*.py"):
        apps[pubsub.topic_of(path.stem)] = functions_framework.create_app(
            path.stem, str(path), "http"
        )
    apps[topics.SYSTEM_EVENTS] = apps[topics.MAINTENANCE]
    for function in apps.values():
        function.config["PROPAGATE_EXCEPTIONS"] = False

    def serve(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        topic = environ["PATH_INFO"].rpartition("/")[2]
        lab.deliveries[topic] += 1
        response: Iterable[bytes] = apps[topic]({**environ, "PATH_INFO": "/"}, start_response)
        return response

    return serve


def break_flows(patched: pytest.MonkeyPatch, error: Exception | None) -> None:
    """Make every flow raise this error; None repairs all flows."""

    def fail(*_: object, **__: object) -> None:
        assert error is not None
        raise error

    for flow in FLOWS:
        patched.setattr(flow, "handle", REAL[flow.__name__] if error is None else fail)


REAL: Final = {flow.__name__: flow.handle for flow in FLOWS}


@pytest.fixture(scope="module")
def letters(lab: Lab, patched: pytest.MonkeyPatch) -> Letters:
    messages = {
        outcome: {kind: prepare_message(lab, outcome, kind) for kind in KINDS}
        for outcome in OUTCOMES
    }
    letters: Letters = {}
    patched.setattr(dead_letter_box, "PULL_S", 2.0)
    box = DeadLetterBox(lab.project)
    for outcome, error in zip(
        OUTCOMES, (PermanentError(REASON), RuntimeError("a bug")), strict=True
    ):
        break_flows(patched, error)
        for kind, (data, attributes) in messages[outcome].items():
            lab.pubsub.publish(kind, data, outcome=outcome, **attributes)

        def all_are_dead_letters(outcome: str = outcome) -> bool:
            letters.update(
                {
                    (letter.attributes["outcome"], letter.topic or ""): letter
                    for letter in box.list_letters()
                }
            )
            return all((outcome, kind) in letters for kind in KINDS)

        eventually(all_are_dead_letters, within_s=90)
    lab.deliveries_until_dead = lab.deliveries.copy()
    return letters


@pytest.fixture(scope="module")
def replayed(lab: Lab, letters: Letters, patched: pytest.MonkeyPatch) -> str:
    break_flows(patched, error=None)
    result = CliRunner().invoke(app, ["dead-letters", "replay", "--all"])
    assert result.exit_code == 0, result.output
    return result.stdout


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", KINDS)
def test_refused_message_is_kept_with_its_reason(kind: str, lab: Lab, letters: Letters) -> None:
    assert letters["refused", kind].reason == REASON


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", KINDS)
def test_failing_message_is_moved_after_its_delivery_attempts(
    kind: str, lab: Lab, letters: Letters
) -> None:
    assert letters["failing", kind].reason == f"not acknowledged by {kind} in all its deliveries"
    assert lab.deliveries_until_dead[kind] == 1 + ATTEMPTS, "one for the refused message"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("outcome", OUTCOMES)
def test_replay_after_the_fix_completes_the_job(
    outcome: str, kind: str, lab: Lab, replayed: str
) -> None:
    assert replayed.count(f"({kind})") == len(OUTCOMES)
    world = lab.world(name(outcome, kind))
    eventually(lambda: has_taken_effect(world, kind))
    if kind == topics.TUNE:
        finish(lab, trial_id(world.job_id, 1), metric={"value": 0.5, "step": 1})
        eventually(lambda: world.state == "SUCCEEDED", within_s=60)
    else:
        finish(lab, world.job_id)


def has_taken_effect(world: World, kind: str) -> bool:
    """Whether the message of this kind was handled."""
    if world.store.load(trial_id(world.job_id, 1) if kind == topics.TUNE else world.job_id) is None:
        return False
    if kind in {topics.PROVISION, topics.SWEEP}:
        return bool(world.vms)
    if kind == topics.VM_READY:
        return world.replica(CHIEF).state is ReplicaState.RUNNING
    if kind in {topics.MAINTENANCE, topics.SYSTEM_EVENTS}:
        return world.replica(WORKER_0).vm_generation == 2
    return kind != topics.REPLICA_EXIT or world.state == "SUCCEEDED"


def test_every_event_topic_is_covered() -> None:
    assert set(KINDS) == set(EVENT_TOPICS)


def name(outcome: str, kind: str) -> str:
    return f"{outcome}_{kind.replace('-', '_')}"


def prepare_message(lab: Lab, outcome: str, kind: str) -> tuple[bytes, dict[str, str]]:
    """Prepare a job that cannot continue without a message of this kind.

    Return the message's data and attributes.
    """
    world = lab.world(name(outcome, kind))
    job = json.dumps({"jobId": world.job_id, **a_spec()}).encode()
    creates_the_job = {topics.UPLOAD, topics.SUBMIT}
    creates_its_vms = {topics.PROVISION, topics.SWEEP}
    is_about_running_programs = {topics.MAINTENANCE, topics.SYSTEM_EVENTS, topics.REPLICA_EXIT}
    if kind not in creates_the_job:
        world.submit(
            a_tuning_spec(maxTrials=1, maxParallelTrials=1) if kind == topics.TUNE else None
        )
    if kind not in {*creates_the_job, *creates_its_vms, topics.TUNE}:
        world.deliver()
    if kind in is_about_running_programs:
        world.report_all_ready()
    data: dict[str, Callable[[], bytes]] = {
        topics.UPLOAD: lambda: b"{}",
        topics.SUBMIT: lambda: job,
        topics.PROVISION: lambda: json.dumps({"version": 1, "job_id": world.job_id}).encode(),
        topics.SWEEP: lambda: b"{}",
        topics.TUNE: lambda: json.dumps({"version": 1, "job_id": world.job_id}).encode(),
        topics.VM_READY: lambda: subject(world, CHIEF),
        topics.MAINTENANCE: lambda: subject(world, WORKER_0, cause="preemption"),
        topics.SYSTEM_EVENTS: lambda: system_event(lab.project, world, WORKER_0),
        topics.REPLICA_EXIT: lambda: subject(world, CHIEF, cause="process", exit_status=0),
    }
    return data[kind](), uploaded(lab, world.job_id, job) if kind == topics.UPLOAD else {}


def uploaded(lab: Lab, job_id: str, job: bytes) -> dict[str, str]:
    path = f"jobs/{job_id}.json"
    generation = lab.objects.write(f"gs://bucket/{path}", job, content_type="application/json")
    return {"bucketId": "bucket", "objectId": path, "objectGeneration": str(generation)}


def subject(world: World, replica_id: ReplicaId, **more: object) -> bytes:
    return json.dumps({**world.message_fields(replica_id), **more}).encode()


def system_event(project: str, world: World, replica_id: ReplicaId) -> bytes:
    vm = world.vm(replica_id)
    payload = {
        "methodName": "compute.instances.preempted",
        "resourceName": f"projects/{project}/zones/{vm.zone}/instances/{vm.name}",
    }
    resource = {"type": "gce_instance", "labels": {"instance_id": vm.instance_id}}
    log = f"projects/{project}/logs/cloudaudit.googleapis.com%2Fsystem_event"
    entry = {
        "logName": log,
        "protoPayload": payload,
        "resource": resource,
        "timestamp": world.now.isoformat(),
    }
    return json.dumps(entry).encode()


def finish(lab: Lab, job_id: str, **more: object) -> None:
    """Report all replicas ready, then the completion of the chief, and wait for the job to be
    SUCCEEDED.
    """
    world = lab.world(job_id)

    def is_running() -> bool:
        loaded = lab.store.load_attempt(job_id)
        if loaded is None or loaded.state.job.state.value == "SUCCEEDED":
            return loaded is not None
        for replica in loaded.state.replicas:
            vm = world.find_vm(replica.replica_id)
            if replica.state is not ReplicaState.RUNNING and vm and vm.directive:
                lab.pubsub.publish(topics.VM_READY, subject(world, replica.replica_id))
        return all(replica.state is ReplicaState.RUNNING for replica in loaded.state.replicas)

    eventually(is_running, within_s=60)
    if world.state != "SUCCEEDED":
        lab.pubsub.publish(
            topics.REPLICA_EXIT, subject(world, CHIEF, cause="process", exit_status=0, **more)
        )
    eventually(lambda: world.state == "SUCCEEDED", within_s=60)
