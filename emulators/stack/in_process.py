"""The control plane in one process, where there are neither Google's emulators nor a container engine for them.

The flows are the real ones, over the adapters in memory that pass the same contract tests; machines, storage, agents
and programs are those of any local stack. Agents publish over the part of Pub/Sub's REST API that they use.

    agents ──HTTP publish──► MemoryBus ──► flows ──► MemoryStore        bucket ──looked at──► upload flow
"""

from __future__ import annotations

import base64
import json
import logging
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from emulators.stack.loopback import CallError, call
from emulators.stack.processes import LOOPBACK
from shared.core.intake.job_files import PREFIX, Uploaded
from shared.errors import PermanentError, TemporaryError
from shared.flows import maintenance, provision, replica_exit, submit, sweep, tune, upload, vm_ready
from shared.flows.record import Deps
from shared.memory.bus import MemoryBus, Message
from shared.memory.store import MemoryStore
from shared.messaging import codec, topics
from shared.ports import JobLog, Objects

PUBLISH: Final = re.compile(r"^/v1/projects/[^/]+/topics/([^/:]+):publish$")
REDELIVERY_S: Final = 1.0
"""As the Pub/Sub emulator does the first time."""
LOOK_S: Final = 0.3
SWEEP_S: Final = 60.0

_log = logging.getLogger(__name__)


class ControlPlane:
    """Serves agents from the start; `connect` gives it storage and machines, and events begin to be handled."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.bus = MemoryBus()
        self.dead_letters: list[tuple[Message, str]] = []
        self._over = threading.Event()
        self._server = ThreadingHTTPServer((LOOPBACK, 0), _handler(self.bus))
        self._server.daemon_threads = True
        self._pool = ThreadPoolExecutor(max_workers=8)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self._server.server_port}"

    def connect(
        self, objects: Objects, machines: provision.Machines, job_log: JobLog, storage: str, bucket: str
    ) -> None:
        """`storage`: `host:port` of Cloud Storage, which is looked at for new job files."""
        deps = Deps(self.store, self.bus, clock=lambda: datetime.now(UTC), sleep=time.sleep, job_log=job_log)
        handlers: dict[str, Callable[[Message], object]] = {
            topics.SUBMIT: lambda it: submit.handle(it.data, it.attributes.get("source"), deps),
            topics.VM_READY: lambda it: vm_ready.handle(codec.vm_ready(it.data), deps),
            topics.REPLICA_EXIT: lambda it: replica_exit.handle(codec.replica_exit(it.data), deps),
            topics.MAINTENANCE: lambda it: maintenance.handle(codec.maintenance(it.data), deps),
            topics.PROVISION: lambda it: provision.handle(codec.provision(it.data), machines, deps),
            topics.TUNE: lambda it: _tune(it, deps),
        }
        for work in (
            lambda: self._deliver(handlers),
            lambda: self._look(storage, bucket, lambda it: upload.handle(it, objects, deps)),
            lambda: self._sweep(deps),
        ):
            threading.Thread(target=work, daemon=True).start()

    def close(self) -> None:
        self._over.set()
        self._server.shutdown()
        self._server.server_close()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _deliver(self, handlers: dict[str, Callable[[Message], object]]) -> None:
        while not self._over.is_set():
            if message := self.bus.take(timeout_s=0.2):
                self._pool.submit(self._handle, handlers[message.topic], message)

    def _handle(self, handler: Callable[[Message], object], message: Message) -> None:
        try:
            handler(message)
        except PermanentError as error:
            _log.error("%s: %s", message.topic, error)
            self.dead_letters.append((message, str(error)))
        except TemporaryError:
            again = threading.Timer(REDELIVERY_S, self.bus.publish, (message.topic, message.data, message.attributes))
            again.daemon = True
            again.start()
        except Exception:
            _log.exception("%s failed", message.topic)
            raise

    def _look(self, storage: str, bucket: str, handle: Callable[[Uploaded], object]) -> None:
        """Stands in for the bucket's notifications: each generation of an object is handled once."""
        seen: set[tuple[str, str]] = set()
        while not self._over.wait(LOOK_S):
            try:
                listing = call(storage, "GET", f"/storage/v1/b/{bucket}/o?prefix={PREFIX}", None)
                for item in listing.get("items", []):
                    key = (item["name"], item["generation"])
                    if key not in seen:
                        handle(Uploaded(bucket, item["name"], int(item["generation"])))
                        seen.add(key)
            except (TemporaryError, CallError, OSError) as error:
                _log.warning("looked at again later: %s", error)

    def _sweep(self, deps: Deps) -> None:
        while not self._over.wait(SWEEP_S):
            sweep.handle(deps)


def _tune(message: Message, deps: Deps) -> None:
    from shared.wiring.suggester import suggester  # half a second that only tuning jobs wait for

    tune.handle(codec.tune(message.data), suggester(), deps)


def _handler(bus: MemoryBus) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """`POST /v1/projects/P/topics/T:publish`, as Pub/Sub answers it."""

        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            match = PUBLISH.match(self.path)
            if match is None:
                self._answer(404, {"error": {"code": 404, "status": "NOT_FOUND"}})
                return
            ids = []
            for nth, message in enumerate(json.loads(body)["messages"]):
                data = base64.b64decode(message.get("data", ""))
                bus.publish(match.group(1), data, message.get("attributes", {}))
                ids.append(str(nth))
            self._answer(200, {"messageIds": ids})

        def _answer(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Silent: this process is the terminal's."""

    return Handler
