"""Starts the parts of one stack, keeps them running, stops them. Lives as long as the stack.

    starting ──all serve──► ready ──SIGTERM──► stopped
        │                     └──a part that holds state ended──► failed (everything is stopped)
        └──a part ended, or time is up──► failed

A function, the scheduler, the proxy and Cloud Storage (whose objects are files) are started again when they end, as
Cloud Run and Google would. Firestore, Pub/Sub and the machines keep their state in memory: starting those again would
lose jobs without a word, so the stack fails instead and says which one it was.

Run as `python -m emulators.stack.supervisor STATE_DIR CONFIG_JSON` below the guard.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Final

from emulators.services import pubsub, storage
from emulators.stack import backends, client_configuration, processes, service, service_plan
from emulators.stack import state as states
from emulators.stack.state import ServiceState, StackConfig, StackError, StackState, StackStatus

ALREADY_UP: Final = 75  # exit status: another supervisor has this directory. Source: EX_TEMPFAIL in <sysexits.h>
POLL_S: Final = 0.1
BACKOFF_FIRST_S: Final = 0.1
BACKOFF_MAX_S: Final = 5.0
CALM_S: Final = 10.0  # a service that lived this long is started at once again


class Supervisor:
    """One stack. `run` returns when it is over."""

    def __init__(self, state_dir: Path, config: StackConfig, stack_id: str) -> None:
        self._dir = state_dir
        self._config = config
        self._id = stack_id
        self._stopping = False
        self._running: dict[str, service.Running] = {}
        self._restarts: dict[str, int] = {}
        self._backoff_s: dict[str, float] = {}
        self._due_at: dict[str, float] = {}
        self._began = time.monotonic()

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        ports = processes.Ports()
        backend = backends.need_emulators(self._config.emulators, in_memory=bool(self._config.control_plane))
        planned = service_plan.plan(self._dir, self._config, backend, self._id, ports)
        self._state = StackState(
            id=self._id,
            status=StackStatus.STARTING,
            config=self._config,
            backend=backend.kind.value,
            supervisor_pid=os.getpid(),
            supervisor_started_at=processes.started_at(os.getpid()) or time.time(),
            started_at=time.time(),
            endpoints=planned.endpoints,
        )
        self._write()
        try:
            self._start(planned)
            while not self._stopping:
                self._tend()
                time.sleep(POLL_S)
        except StackError as error:
            sys.stderr.write(f"{error}\n")
            self._end(StackStatus.FAILED, str(error))
            return 1
        self._end(StackStatus.STOPPED)
        return 0

    def _stop(self, _number: int, _frame: FrameType | None) -> None:
        self._stopping = True

    def _start(self, planned: service_plan.Plan) -> None:
        """All at once: nothing needs another one to start, only to work."""
        client_configuration.write_configuration(self._dir, self._config, planned.endpoints)
        for each in planned.services:
            self._launch(each)
        self._write()
        emulators = [self._running[name] for name in (pubsub.NAME, storage.NAME) if name in self._running]
        service.wait_ready(emulators, self._config.ready_within_s, give_up=self._give_up)
        with ThreadPoolExecutor() as pool:
            bucket = pool.submit(
                storage.create_bucket, planned.endpoints.storage, self._config.project, self._config.bucket
            )
            if pubsub.NAME in self._running:
                client = pubsub.PubSub(planned.endpoints.pubsub, self._config.project)
                pubsub.create_all(client, planned.function_ports)
            bucket.result()
        service.wait_ready(list(self._running.values()), self._config.ready_within_s, give_up=self._give_up)
        self._write(status=StackStatus.READY, ready_after_s=round(time.monotonic() - self._began, 2))

    def _give_up(self) -> bool:
        return self._stopping

    def _launch(self, desired: service.Service) -> None:
        log = self._dir / states.LOGS / f"{desired.name}.log"
        self._running[desired.name] = service.Running(desired, processes.service_environment(self._id), log)

    def _tend(self) -> None:
        """Start again what ended and is due. Raises StackError for what cannot be."""
        for name, running in list(self._running.items()):
            status = running.exit_status()
            if status is None:
                continue
            if not running.service.restartable:
                raise StackError(f"{name} ended with {service.describe(status)}; its state is lost, so the stack stops")
            now = time.monotonic()
            if name not in self._due_at:
                self._due_at[name] = now + self._backoff(name, time.time() - running.started_at)
                sys.stderr.write(f"{name} ended with {service.describe(status)}\n")
            elif now >= self._due_at[name]:
                del self._due_at[name]
                running.kill()
                self._restarts[name] = self._restarts.get(name, 0) + 1
                self._launch(running.service)
                self._write()

    def _backoff(self, name: str, lived_s: float) -> float:
        """How long to wait: nothing after a calm incarnation, else twice as long as the last time."""
        if lived_s > CALM_S:
            self._backoff_s.pop(name, None)
        wait_s = self._backoff_s.get(name, 0.0)
        self._backoff_s[name] = min(max(BACKOFF_FIRST_S, 2 * wait_s), BACKOFF_MAX_S)
        return wait_s

    def _end(self, status: StackStatus, error: str | None = None) -> None:
        service.stop(list(self._running.values()))
        self._running.clear()
        self._write(status=status, error=error)

    def _write(self, **changes: object) -> None:
        services = {
            name: ServiceState(
                pid=each.pid,
                started_at=each.started_at,
                address=each.service.address,
                restarts=self._restarts.get(name, 0),
                log=str(each.log),
            )
            for name, each in self._running.items()
        }
        self._state = self._state.model_copy(update={"services": services, **changes})
        states.write(self._dir, self._state)


def clear(state_dir: Path) -> None:
    """End what a killed stack of this directory left, and begin with empty data."""
    with suppress(StackError):  # unreadable: written by another version, or cut off; it is about to be replaced
        if (old := states.read(state_dir)) is not None:
            processes.kill_stack(old.id)
    (state_dir / states.STATE_FILE).unlink(missing_ok=True)
    for name in states.DATA:
        shutil.rmtree(state_dir / name, ignore_errors=True)
        (state_dir / name).mkdir()
    for log in (state_dir / states.LOGS).glob("*.log"):
        if log.name != states.SUPERVISOR_LOG:
            log.unlink()


def main(argv: list[str]) -> int:
    state_dir, config = Path(argv[0]), StackConfig.model_validate_json(argv[1])
    try:
        with states.lock(state_dir):
            clear(state_dir)
            try:
                return Supervisor(state_dir, config, os.environ[processes.STACK_ID]).run()
            except StackError as error:
                sys.stderr.write(f"{error}\n")
                return 1
    except BlockingIOError:
        return ALREADY_UP


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
