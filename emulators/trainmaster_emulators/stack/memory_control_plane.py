"""The control plane in one process, for machines that cannot run Google's emulators.

The flows are the real ones. They use the adapters in memory, which pass the same contract tests as
the real adapters. VMs, storage, agents and programs are those of any local stack. Agents publish
over the part of Pub/Sub's REST API that they use. Two threads replace Cloud Storage's
notifications and Cloud Scheduler.

    agents ──HTTP publish──► MemoryBus ──► flows ──► MemoryStore
    bucket ──────polled────►     ▲
    clock  ──every minute────────┘
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Final

from werkzeug.wrappers import Request

from trainmaster.core.intake.job_files import PREFIX
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.flows.dispatch import Handler, handlers_by_topic
from trainmaster.flows.job_creation.deps import CreationDeps
from trainmaster.flows.provisioning.fleet_deps import FleetDeps
from trainmaster.messaging import topics
from trainmaster.ports import JobLog, Objects, Suggester
from trainmaster.settings import settings
from trainmaster_emulators.process.loopback import CallError, call
from trainmaster_emulators.process.processes import LOOPBACK
from trainmaster_emulators.rest.api_errors import Json
from trainmaster_emulators.rest.server import RestServer, json_body, listen
from trainmaster_local.memory.bus import MemoryBus, Message
from trainmaster_local.memory.store import MemoryStore

PUBLISH: Final = "/v1/projects/<project>/topics/<topic>:publish"
REDELIVERY_S: Final = 1.0
"""The first redelivery delay of the Pub/Sub emulator."""
TAKE_S: Final = 0.2
"""Longest wait for a message before `close` is noticed."""
HANDLERS_MAX: Final = 8
"""Messages that are handled at the same time."""
UPLOAD_POLL_S: Final = 0.3
SWEEP_S: Final = 60.0

_log = logging.getLogger(__name__)


class MemoryControlPlane:
    """The store, the bus and the flows of a local stack.

    Agents can publish as soon as this object exists. Events are handled after `connect`.
    """

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.bus = MemoryBus()
        self.dead_letters: list[tuple[Message, str]] = []
        self._closed = threading.Event()
        self._server = listen(LOOPBACK, 0, RestServer(("POST", PUBLISH, self._publish)))
        self._pool = ThreadPoolExecutor(HANDLERS_MAX)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self._server.server_port}"

    def connect(
        self, objects: Objects, machines: FleetDeps, job_log: JobLog, storage: str, bucket: str
    ) -> None:
        """Start handling events.

        The settings of the stack must be in the environment. `storage`: `host:port` of Cloud
        Storage, where `bucket` is polled for new job files.
        """
        deps = CreationDeps(
            self.store,
            self.bus,
            clock=lambda: datetime.now(UTC),
            sleep=time.sleep,
            job_log=job_log,
            objects=lambda: objects,
            algorithms=settings().algorithms,
            gcsfuse=settings().gcsfuse,
            gcs_in_containers=False,
        )
        handlers = handlers_by_topic(
            lambda: deps,
            auth_deps=None,
            fleet_deps=lambda: machines,
            objects=lambda: objects,
            suggester=_suggester,
        )
        self._start(self._deliver, handlers)
        self._start(self._poll_uploads, storage, bucket)
        self._start(self._sweep)

    def close(self) -> None:
        self._closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _publish(self, request: Request, project: str, topic: str) -> Json:  # noqa: ARG002
        """Answer Pub/Sub's call. There is one project."""
        messages = json_body(request)["messages"]
        for message in messages:
            data = base64.b64decode(message.get("data", ""))
            self.bus.publish(topic, data, message.get("attributes", {}))
        return {"messageIds": [str(position) for position in range(len(messages))]}

    def _start(self, loop: Callable[..., None], *arguments: object) -> None:
        threading.Thread(target=loop, args=arguments, daemon=True).start()

    def _deliver(self, handlers: Mapping[str, Handler]) -> None:
        while not self._closed.is_set():
            message = self.bus.take(TAKE_S)
            if message is not None:
                self._pool.submit(self._handle, handlers[message.topic], message)

    def _handle(self, handler: Handler, message: Message) -> None:
        try:
            handler(message)
        except PermanentError as error:
            _log.error("%s: %s", message.topic, error)
            self.dead_letters.append((message, str(error)))
        except TemporaryError:
            redelivery = threading.Timer(REDELIVERY_S, self.bus.redeliver, (message,))
            redelivery.daemon = True
            redelivery.start()
        except Exception:
            _log.exception("%s failed", message.topic)
            raise

    def _poll_uploads(self, storage: str, bucket: str) -> None:
        """Replace the bucket's notifications: publish each generation of an object once."""
        published: set[tuple[str, str]] = set()
        while not self._closed.wait(UPLOAD_POLL_S):
            try:
                listing = call(storage, "GET", f"/storage/v1/b/{bucket}/o?prefix={PREFIX}", None)
            except (CallError, OSError) as error:
                _log.warning("cannot list job files now; the next poll retries: %s", error)
                continue
            for item in listing.get("items", []):
                generation = (item["name"], item["generation"])
                if generation not in published:
                    published.add(generation)
                    self._notify(bucket, item)

    def _notify(self, bucket: str, item: Json) -> None:
        """Publish a notification of Cloud Storage about an object resource."""
        attributes = {
            "bucketId": bucket,
            "objectId": item["name"],
            "objectGeneration": item["generation"],
        }
        self.bus.publish(topics.UPLOAD, json.dumps(item).encode(), attributes)

    def _sweep(self) -> None:
        while not self._closed.wait(SWEEP_S):
            self.bus.publish(topics.SWEEP, b"{}", attributes={})


def _suggester() -> Suggester:
    # The import takes half a second; only tuning jobs need it.
    from trainmaster.suggesters.optuna_suggester import OptunaSuggester

    return OptunaSuggester()
