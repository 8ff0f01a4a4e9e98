"""Repeated messages and killed functions, as Pub/Sub and Cloud Run may cause them."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psutil
import pytest

from tests.e2e.conftest import MANY_STEPS, Lab
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name
from trainmaster.messaging import topics
from trainmaster_emulators.process.loopback import CallError, call
from trainmaster_emulators.services import pubsub

HEAVY = pytest.mark.heavy(
    fact="duplicates of all messages of a whole job change nothing",
    quick="`sim`, `contract/store`, `unit/flows/test_system_events.py`",
)

REPEATED_WITHIN_S = 80
"""`Lab` waits up to three times as long, four minutes: a killed delivery is repeated, and a sweep
may have to help.
"""

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(400)]

CHIEF, WORKER_0, WORKER_1 = (
    ReplicaId(TaskType.CHIEF, 0),
    ReplicaId(TaskType.WORKER, 0),
    ReplicaId(TaskType.WORKER, 1),
)
FUNCTIONS = ("submit", "vm_ready", "replica_exit", "maintenance", "provision", "sweep")


@contextmanager
def every_message_twice(lab: Lab) -> Iterator[None]:
    """Add a second subscription with the same endpoint to each topic, so that every message arrives
    twice.
    """
    state = lab.stack.state
    project, host = state.config.project, state.endpoints.pubsub
    names = []
    for function in FUNCTIONS:
        topic = pubsub.topic_of(function)
        endpoint = f"http://{state.services[function].address}/projects/{project}/topics/{topic}"
        body = {
            "topic": f"projects/{project}/topics/{topic}",
            "ackDeadlineSeconds": 60,
            "pushConfig": {"pushEndpoint": endpoint},
        }
        names.append(f"/v1/projects/{project}/subscriptions/{topic}-again")
        call(host, "PUT", names[-1], body)
    try:
        yield
    finally:
        for name in names:
            call(host, "DELETE", name, None)


@HEAVY
def test_every_message_delivered_twice_changes_nothing(lab: Lab) -> None:
    with every_message_twice(lab):
        job_id = lab.scripted(workers=2, steps=MANY_STEPS)
        lab.wait_for_programs(job_id)
        lab.faults.kill_program(vm_name(job_id, WORKER_0))
        lab.until(lambda: lab.replica(job_id, WORKER_0).incarnation == 2, 20)
        lab.finish(job_id)
        state = lab.wait_for_success(job_id)
    by_replica_id = {replica.replica_id: replica for replica in state.replicas}
    assert by_replica_id[WORKER_0].restarts_used == 1
    assert by_replica_id[CHIEF].restarts_used == by_replica_id[WORKER_1].restarts_used == 0
    assert state.job.attempt == 1
    keys = [entry.key for entry in lab.store.ledger(job_id)]
    assert len(keys) == len(set(keys))
    assert count_created_vms(lab, job_id) == 3, "one VM per replica"


@HEAVY
def test_message_published_five_times_changes_nothing(lab: Lab) -> None:
    job_id = lab.scripted(workers=1, steps=MANY_STEPS)
    lab.wait_for_programs(job_id)
    vm = lab.vm(job_id, WORKER_0)
    subject = {
        "version": 1,
        "job_id": job_id,
        "attempt": 1,
        "task_type": "worker",
        "task_index": 0,
        "incarnation": 1,
        "vm_generation": 1,
        "vm": {"name": vm.name, "zone": vm.zone, "instance_id": vm.instance_id},
        "at": "2026-11-21T03:00:00Z",
    }
    lab.faults.kill_program(vm.name)
    # The next round has begun.
    lab.until(lambda: lab.replica(job_id, WORKER_0).restarts_used == 1, 20)
    before = lab.state(job_id)
    exit_again = json.dumps({**subject, "cause": "process", "signal": 9}).encode()
    for _ in range(5):
        lab.stack.pubsub.publish(topics.REPLICA_EXIT, exit_again)
        lab.stack.pubsub.publish(topics.VM_READY, json.dumps(subject).encode())
        lab.stack.pubsub.publish(
            topics.PROVISION, json.dumps({"version": 1, "job_id": job_id}).encode()
        )
    steps = lab.console(job_id, WORKER_0).count("step ")
    # Time to handle the messages.
    lab.until(lambda: lab.console(job_id, WORKER_0).count("step ") >= steps + 30, 10)
    lab.finish(job_id)
    after = lab.wait_for_success(job_id)
    assert [replica.restarts_used for replica in after.replicas] == [
        replica.restarts_used for replica in before.replicas
    ]
    assert [replica.incarnation for replica in after.replicas] == [2, 2], "one round ended"
    assert sum(entry.key == "1-worker-0-1-vm-1-exit" for entry in lab.store.ledger(job_id)) == 1


@pytest.mark.heavy(
    fact="killed functions lose no event",
    quick="`integration/stack/test_delivery.py`, `sim`, `explorer`",
)
@pytest.mark.timeout(900)
def test_functions_killed_every_second_lose_no_event(lab: Lab) -> None:
    """A random function process gets SIGKILL every second, while the job also loses a worker."""
    finished = threading.Event()
    killer = threading.Thread(target=kill_functions, args=(lab, finished))
    killer.start()
    try:
        job_id = lab.scripted(workers=2, steps=MANY_STEPS)
        lab.wait_for_programs(job_id, REPEATED_WITHIN_S)
        lab.faults.kill_program(vm_name(job_id, WORKER_1))
        lab.until(lambda: lab.replica(job_id, WORKER_1).incarnation == 2, REPEATED_WITHIN_S)
        lab.finish(job_id)
        lab.wait(job_id, "SUCCEEDED", REPEATED_WITHIN_S)
    finally:
        finished.set()
        killer.join()
    state = lab.wait_for_success(job_id, 90)
    assert [replica.restarts_used for replica in state.replicas] == [0, 0, 1]
    assert state.job.attempt == 1
    assert sum(service.restarts for service in lab.stack.state.services.values()) > 0


def kill_functions(lab: Lab, finished: threading.Event) -> None:
    """Kill a random process of a random function every second, but only after the last killed
    function runs again.

    On a busy machine a start takes longer than a second. Without the wait, no function would run
    long enough to work.
    """
    chance = random.Random(20261121)  # noqa: S311 - a fixed seed, so that every run kills the same processes
    while not finished.wait(1.0):
        name = chance.choice(("upload", *FUNCTIONS))
        with suppress(psutil.NoSuchProcess, ProcessLookupError):
            process = psutil.Process(lab.stack.state.services[name].pid)
            victim = chance.choice([process, *process.children(recursive=True)])
            os.kill(victim.pid, signal.SIGKILL)
        while not is_serving(lab.stack.state.services[name].address) and not finished.wait(0.2):
            pass


def is_serving(address: str) -> bool:
    """Return whether a function has started. functions-framework itself answers this
    path with 404.
    """
    try:
        call(address, "GET", "/favicon.ico", timeout_s=1.0)
    except CallError:
        return True
    except OSError:
        return False
    return True


def count_created_vms(lab: Lab, job_id: str) -> int:
    """Return how many VMs Compute Engine created for this job: each has its own insert
    operation.
    """
    state = lab.stack.state
    assert state.endpoints.compute is not None
    job = lab.state(job_id).job
    path = f"/compute/v1/projects/{state.config.project}/zones/{job.zone}/operations?maxResults=500"
    operations = call(state.endpoints.compute, "GET", path, None)["items"]
    names = {vm_name(job_id, replica_id) for replica_id in job.plan.replica_ids}
    inserts = [operation for operation in operations if operation["operationType"] == "insert"]
    return sum(operation["targetLink"].rpartition("/")[2] in names for operation in inserts)
