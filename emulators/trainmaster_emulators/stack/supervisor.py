"""Start the services of one stack, keep them running, stop them.

The supervisor runs as long as the stack.

    starting ──all services ready──► ready ──SIGTERM──► stopped
        │                              └──a service that holds state ended──► failed
        └──a service ended, or the time limit passed──► failed

In the state `failed`, everything is stopped.

The supervisor restarts functions, the scheduler, the proxy, Cloud Logging, Cloud Monitoring and
Cloud Storage (whose data are files) when they end, as Google would. Firestore, Pub/Sub and Compute
keep their state in memory: a restart would silently lose jobs, so the stack fails instead, and the
error names the service.

Run as `python -m trainmaster_emulators.stack.supervisor STATE_DIR CONFIG_JSON` below
`parent_watchdog`.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType
from typing import Final

from trainmaster.cost.price_list import OBJECT_NAME, make_price_file, write_price_list
from trainmaster.gcp.tools.price_catalogue import PriceCatalogue
from trainmaster.packaging.agent_archive import agent_archive, agent_object
from trainmaster.packaging.algorithms_archive import algorithms_archive, algorithms_object
from trainmaster_emulators.machines.gcsfuse.server import find_obstacle, gcsfuse_program
from trainmaster_emulators.process import backends, processes, service
from trainmaster_emulators.process import state as states
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.process.state import (
    Endpoints,
    ServiceState,
    StackError,
    StackState,
    StackStatus,
)
from trainmaster_emulators.services import functions_host, pubsub, storage
from trainmaster_emulators.stack import client_configuration, service_plan

POLL_S: Final = 0.1
"""Time between two searches for services that have ended."""
BACKOFF_FIRST_S: Final = 0.1
"""Delay of the second of two restarts in a row; each further one waits twice as long."""
BACKOFF_MAX_S: Final = 5.0
STABLE_S: Final = 10.0
"""A service that ran for longer than this is restarted without a delay."""


class Supervisor:
    """One stack. `run` returns when the stack has ended."""

    def __init__(self, state_dir: Path, config: StackConfig, stack_id: str) -> None:
        self._dir = state_dir
        self._config = config
        if config.gcs is None:
            self._config = config.model_copy(update={"gcs": find_obstacle() == ""})
        self._id = stack_id
        self._stopping = False
        self._running: dict[str, service.Running] = {}
        self._restarts: dict[str, int] = {}
        self._backoff_s: dict[str, float] = {}
        self._restart_at: dict[str, float] = {}
        self._start_time = time.monotonic()

    def run(self) -> int:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        ports = processes.Ports()
        backend = backends.require_backend(
            self._config.emulators, in_memory=bool(self._config.control_plane)
        )
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
                self._restart_ended()
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
        """Start all services at once: a service needs the others to work, not to start."""
        client_configuration.write_configuration(self._dir, self._config, planned.endpoints)
        functions = [
            planned_service for planned_service in planned.services if planned_service.keeps_socket
        ]
        for planned_service in planned.services:
            if planned_service not in functions:
                self._launch(planned_service)
        if functions:
            # This happens while the emulators start.
            functions_host.import_shared_modules(self._config.functions_dir)
        for function in functions:
            self._launch(function)
        self._write()
        # The next calls need these; the others go on starting meanwhile.
        needed = (pubsub.NAME, storage.NAME, service_plan.BILLING)
        emulators = [self._running[name] for name in needed if name in self._running]
        service.wait_ready(emulators, self._config.ready_within_s, give_up=self._give_up)
        with ThreadPoolExecutor() as pool:
            buckets = pool.submit(self._create_buckets, planned.endpoints)
            if pubsub.NAME in self._running:
                client = pubsub.PubSub(planned.endpoints.pubsub, self._config.project)
                pubsub.create_topics_and_subscriptions(client, planned.function_ports)
            buckets.result()
        service.wait_ready(
            list(self._running.values()), self._config.ready_within_s, give_up=self._give_up
        )
        self._write(
            status=StackStatus.READY, ready_after_s=round(time.monotonic() - self._start_time, 2)
        )

    def _create_buckets(self, endpoints: Endpoints) -> None:
        """Create the public buckets and those of infra/; store the agent and the algorithms, as
        infra/ does, and the prices, so that the cost of the first job is known.
        """
        host = endpoints.storage
        storage.create_bucket(host, self._config.project, self._config.bucket)
        storage.create_bucket(host, self._config.project, self._config.stage_bucket)
        for bucket, folder in self._config.public_buckets.items():
            storage.create_bucket_from(host, self._config.project, bucket, folder)
        archive = agent_archive(compiled=True)  # its VMs have the Python of this machine
        storage.create_object(host, self._config.stage_bucket, agent_object(archive), archive)
        wheel = algorithms_archive()
        storage.create_object(host, self._config.stage_bucket, algorithms_object(wheel), wheel)
        storage.create_object(
            host,
            self._config.stage_bucket,
            client_configuration.gcsfuse_object(),
            gcsfuse_program(),
        )
        if endpoints.billing:
            catalogue = PriceCatalogue(self._config.project, f"http://{endpoints.billing}")
            prices = make_price_file(
                catalogue.all_skus("USD"), datetime.now(UTC), "emulator of Cloud Billing"
            )
            catalogue.close()
            storage.create_object(host, self._config.bucket, OBJECT_NAME, write_price_list(prices))

    def _give_up(self) -> bool:
        return self._stopping

    def _launch(self, desired: service.Service) -> None:
        log = self._dir / states.LOGS / f"{desired.name}.log"
        environment = processes.service_environment(
            self._id, addresses=self._state.endpoints.addresses()
        )
        self._running[desired.name] = service.Running(desired, environment, log, forks=True)

    def _restart_ended(self) -> None:
        """Restart services that have ended, after their backoff.

        Raises StackError for one that is not restartable.
        """
        for name, running in list(self._running.items()):
            status = running.exit_status()
            if status is None:
                continue
            if not running.service.restartable:
                raise StackError(
                    f"{name} ended with {service.describe_exit(status)} and lost its state, so the"
                    " stack was stopped"
                )
            now = time.monotonic()
            if name not in self._restart_at:
                self._restart_at[name] = now + self._next_backoff(
                    name, time.time() - running.started_at
                )
                sys.stderr.write(f"{name} ended with {service.describe_exit(status)}\n")
            elif now >= self._restart_at[name]:
                del self._restart_at[name]
                running.kill()
                self._restarts[name] = self._restarts.get(name, 0) + 1
                running.start()
                self._write()

    def _next_backoff(self, name: str, ran_s: float) -> float:
        """Return the delay before the restart: 0 after a stable run, else twice the last delay."""
        if ran_s > STABLE_S:
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
                pid=running.pid,
                started_at=running.started_at,
                address=running.service.address,
                restarts=self._restarts.get(name, 0),
                log=str(running.log),
            )
            for name, running in self._running.items()
        }
        self._state = self._state.model_copy(update={"services": services, **changes})
        states.write(self._dir, self._state)


def clear(state_dir: Path) -> None:
    """Kill what an earlier stack of this directory left, and empty its data."""
    with suppress(StackError):  # unreadable, because another version wrote it; it is replaced next
        old = states.read(state_dir)
        if old is not None:
            processes.kill_stack(old.id)
    (state_dir / states.STATE_FILE).unlink(missing_ok=True)
    for name in states.DATA:
        shutil.rmtree(state_dir / name, ignore_errors=True)
        (state_dir / name).mkdir()
    for log in (state_dir / states.LOGS).glob("*.log"):
        if log.name != states.SUPERVISOR_LOG:
            log.unlink()


def main(argv: list[str]) -> int:
    state_dir = Path(argv[0])
    config = StackConfig.model_validate_json(argv[1])
    try:
        with states.lock(state_dir):
            clear(state_dir)
            try:
                return Supervisor(state_dir, config, os.environ[processes.STACK_ID]).run()
            except StackError as error:
                sys.stderr.write(f"{error}\n")
                return 1
    except BlockingIOError:
        return states.ALREADY_UP


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
