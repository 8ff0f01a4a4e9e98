"""`python -m trainmaster_emulators.scheduler --port PORT --state-dir DIR --project P --pubsub HOST
--token-file FILE`.

`--every SECONDS --topic T`: also publish `{}` to that topic at this interval, which may be shorter
than a minute. Crontab expressions have no shorter intervals: on Google Cloud, a job of Cloud
Scheduler calls `sweep` once a minute.
"""

from __future__ import annotations

import logging
import sys
import threading

from trainmaster_emulators.process.loopback import CallError
from trainmaster_emulators.process.processes import LOOPBACK
from trainmaster_emulators.rest.command_line import EmulatorParser
from trainmaster_emulators.rest.server import serving
from trainmaster_emulators.scheduler.clock import Clock
from trainmaster_emulators.scheduler.dispatch import Dispatcher
from trainmaster_emulators.scheduler.job_store import JobStore
from trainmaster_emulators.scheduler.server import SchedulerServer
from trainmaster_emulators.services import iam
from trainmaster_emulators.services.pubsub import PubSub

log = logging.getLogger(__name__)


def main(argv: list[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT."""
    parser = EmulatorParser("scheduler", "Emulator of Cloud Scheduler.")
    parser.add_port()
    parser.add_state_dir("the jobs")
    parser.add_argument("--project", required=True)
    parser.add_argument("--pubsub", required=True, help="host:port of the Pub/Sub emulator")
    parser.add_token_file()
    parser.add_argument("--topic", help="topic that gets a message at an interval")
    parser.add_argument("--every", type=float, default=60.0, help="seconds")
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    options.state_dir.mkdir(parents=True, exist_ok=True)
    store = JobStore(options.state_dir / "jobs.sqlite")
    dispatcher = Dispatcher(options.pubsub, iam.secret_of(options.token_file))
    clock = Clock(store, dispatcher)
    server = SchedulerServer(options.project, store, clock, dispatcher)
    with serving(LOOPBACK, options.port, server) as stopped:
        threading.Thread(target=clock.run, daemon=True).start()
        if options.topic:
            pubsub = PubSub(options.pubsub, options.project)
            publish_until(stopped, pubsub, options.topic, options.every)
        stopped.wait()
        clock.stop()
    return 0


def publish_until(stopped: threading.Event, pubsub: PubSub, topic: str, every_s: float) -> None:
    """Publish at the interval. A failed call is logged and not repeated."""
    while not stopped.wait(every_s):
        try:
            pubsub.publish(topic, b"{}")
        except (OSError, CallError) as error:
            log.warning("cannot publish to %s: %s", topic, error)


if __name__ == "__main__":
    sys.exit(main())
