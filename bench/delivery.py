"""The time from publishing an event to its commit, through a Pub/Sub push, compared with handlers without our code.

    empty    the push alone
    bare     the push, and one read and one conditional commit with the same client (`bench.bare_calls`): the floor

All handlers are in one app of Flask, on which functions-framework is based. Their events take turns.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, cast

import flask
from werkzeug.serving import make_server

from bench.agents import agents
from bench.bare_calls import BareEvents, latest_keys
from bench.cloud import Emulators, Project
from bench.control_plane import ControlPlane
from bench.figures import Figure, Figures, median_ms
from bench.jobs import job_spec
from trainmaster.messaging import push
from trainmaster.messaging.internal_requests import ProvisionRequest
from trainmaster.ports import Store
from trainmaster_emulators.rest.server import in_background
from trainmaster_emulators.services import pubsub

JOB: Final = "delivery"
EVENTS: Final = "bench-events"
EMPTY: Final = "bench-empty"
BARE: Final = "bench-bare"
WARM_UP: Final = 5
WAIT_S: Final = 60.0
SETTLE_S: Final = 1.0
"""Time for the last handler, which still works after its commit."""
RATIO_MAX: Final = 1.2


def measure(emulators: Emulators, samples: int) -> Figures:
    """Return the time from publishing to the commit, in ms."""
    with emulators.project() as project, agents(project.name) as senders:
        store = _SignallingStore(project.store)
        functions = ControlPlane(cast("Store", store), auth=senders.auth(project.store), bus=project.bus)
        functions.run([functions.submit(JOB, job_spec(samples + WARM_UP))])
        functions.run([functions.provision(ProvisionRequest(JOB))])

        bare_event = BareEvents(project.client, JOB, *latest_keys(project.observer, JOB), "delivery")
        empty, bare = threading.Semaphore(0), threading.Semaphore(0)
        store.committed = threading.Semaphore(0)

        def handle(message: push.Message) -> None:
            functions.vm_ready(message)[1]()

        def handle_bare(_: push.Message) -> None:
            bare_event.run()
            bare.release()

        with _push_subscriptions(
            emulators, project, {EVENTS: handle, EMPTY: lambda _: empty.release(), BARE: handle_bare}
        ):
            done = {EVENTS: store.committed, EMPTY: empty, BARE: bare}
            times: dict[str, list[float]] = {topic: [] for topic in done}
            for vm in functions.vms(JOB):
                message = senders.message(JOB, vm)
                for topic, seconds in times.items():
                    began = time.perf_counter()
                    project.bus.publish(topic, message.data, message.attributes)
                    if not done[topic].acquire(timeout=WAIT_S):
                        raise RuntimeError(f"no push from {topic} within {WAIT_S:.0f} s")
                    seconds.append(time.perf_counter() - began)
            time.sleep(SETTLE_S)
        waiting = [replica for replica in functions.replicas(JOB).values() if not replica.ever_ready]
        if waiting:
            raise RuntimeError(f"{len(waiting)} events were not committed")
    event_ms, empty_ms, bare_ms = (median_ms(times[topic][WARM_UP:]) for topic in (EVENTS, EMPTY, BARE))
    return {
        "delivery: publish to committed": Figure(event_ms, "ms", bare_ms, ratio_max=RATIO_MAX),
        "delivery: publish to committed, beside an empty handler": Figure(event_ms, "ms", empty_ms),
    }


class _SignallingStore:
    """A store that reports its commits."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.committed = threading.Semaphore(0)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, *args: Any) -> None:
        self._store.commit(*args)
        self.committed.release()


@contextmanager
def _push_subscriptions(
    emulators: Emulators, project: Project, handlers: Mapping[str, Callable[[push.Message], object]]
) -> Iterator[None]:
    """Push each topic to its handler."""
    app = flask.Flask(__name__)

    def receive(topic: str) -> push.Response:
        return push.serve(flask.request, topic, handlers[topic], lambda: project.bus)

    app.add_url_rule(f"/projects/{project.name}/topics/<topic>", view_func=receive, methods=["POST"])
    server = make_server("127.0.0.1", 0, app, threaded=True)
    calls = pubsub.PubSub(emulators.pubsub, project.name)
    with in_background(server):
        for topic in handlers:
            calls.create_topic(topic)
            calls.create_push(topic, server.server_port, pubsub.DELIVERY, dead_letter="trainmaster-dead-letter")
        yield
