"""`python -m trainmaster_emulators.compute`: serve until SIGTERM or SIGINT.

All VMs end with this process, however it ends.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from trainmaster_emulators.compute.addresses import AddressBook
from trainmaster_emulators.compute.cloud import RUN_DURATION_S_MIN, Cloud
from trainmaster_emulators.compute.control import Control
from trainmaster_emulators.compute.server import ComputeServer
from trainmaster_emulators.compute.system_events import NO_DELAY, LogSink
from trainmaster_emulators.machines.catalog import Catalog, Links, stable_id
from trainmaster_emulators.machines.vm_metadata import Project
from trainmaster_emulators.machines.vm_power import VmPower
from trainmaster_emulators.machines.vm_tokens import TokenIssuer
from trainmaster_emulators.machines.vm_transitions import (
    SystemEventSink,
    Timing,
    discard_system_event,
)
from trainmaster_emulators.realism.profile import GOOGLE_CLOUD
from trainmaster_emulators.rest.command_line import EmulatorParser, split_pairs
from trainmaster_emulators.rest.server import serving
from trainmaster_emulators.tpu.cloud import TpuCloud
from trainmaster_emulators.tpu.hosts import SliceHosts

PUBSUB: Final = "PUBSUB_EMULATOR_HOST"
TOPIC: Final = re.compile(r"projects/[^/]+/topics/[^/]+")


def parse_arguments(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = EmulatorParser("compute", __doc__)
    parser.add_host()
    parser.add_port()
    parser.add_state_dir("disks and serial logs of the VMs, which are deleted first")
    parser.add_argument("--project", required=True)
    parser.add_argument(
        "--project-number", type=int, help="default: a number derived from the project's id"
    )
    parser.add_argument(
        "--vm-env",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="environment variable of every VM; repeatable",
    )
    parser.add_argument(
        "--images",
        type=Path,
        metavar="FILE",
        help="JSON: image or family name to Python environment",
    )
    timing = Timing()
    parser.add_argument(
        "--step-s",
        type=float,
        default=timing.step_s,
        help="seconds that a VM takes for each change of state",
    )
    parser.add_argument(
        "--shutdown-s",
        type=float,
        default=timing.shutdown_s,
        help="time a VM has to shut down before power-off",
    )
    parser.add_argument(
        "--maintenance-notice-s",
        type=float,
        default=timing.maintenance_notice_s,
        help="time from the maintenance event in a VM's metadata to its stop",
    )
    parser.add_argument(
        "--run-min-s",
        type=float,
        default=RUN_DURATION_S_MIN,
        help="shortest maxRunDuration accepted",
    )
    parser.add_argument(
        "--system-events-topic",
        metavar="projects/P/topics/T",
        help=f"topic that gets the system-event audit log, on the Pub/Sub emulator of ${PUBSUB}",
    )
    parser.add_argument(
        "--realistic",
        action="store_true",
        help="durations, API quotas and failures of Google Cloud",
    )
    parser.add_argument(
        "--time-scale", type=float, default=1.0, help="with --realistic: factor of all durations"
    )
    options = parser.parse_args(arguments)
    for pair in options.vm_env:
        if "=" not in pair:
            parser.error(f"--vm-env must be KEY=VALUE, not {pair!r}")
    topic = options.system_events_topic
    if topic:
        if not TOPIC.fullmatch(topic):
            parser.error(f"--system-events-topic must be projects/P/topics/T, not {topic!r}")
        if not os.environ.get(PUBSUB):
            parser.error(f"--system-events-topic needs {PUBSUB}")
    return options


def main(argv: list[str] | None = None) -> int:
    options = parse_arguments(argv)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    state_dir: Path = options.state_dir.absolute()
    for name in ("vms", "serial"):
        shutil.rmtree(state_dir / name, ignore_errors=True)
        (state_dir / name).mkdir(parents=True)
    project = Project(options.project, options.project_number or _project_number(options.project))
    issuer = TokenIssuer()
    links = Links(f"http://{options.host}:{options.port}/compute/v1", project.id)
    catalog = Catalog(links, json.loads(options.images.read_text()) if options.images else {})
    power = VmPower(project, options.host, issuer, dict(split_pairs(options.vm_env)))
    profile = GOOGLE_CLOUD.scaled(options.time_scale) if options.realistic else None
    timing = Timing(options.step_s, options.shutdown_s, options.maintenance_notice_s)
    if profile:
        timing = replace(
            timing,
            maintenance_notice_s=profile.maintenance_notice_s,
            create=profile.create,
            delete=profile.delete,
        )
    sink: SystemEventSink = discard_system_event
    if options.system_events_topic:
        delay = profile.audit_log if profile else NO_DELAY
        sink = LogSink(os.environ[PUBSUB], options.system_events_topic, project.id, delay).export
    cloud = Cloud(project, catalog, power, state_dir, timing, options.run_min_s, sink)
    if profile:
        cloud.behave_like(profile)
    tpus = TpuCloud(SliceHosts(power, catalog, state_dir), cloud.faults, timing)
    if profile:
        tpus.lifecycle.behave_like(profile)
    control = Control(cloud, tpus, AddressBook(options.host), issuer)
    with serving(options.host, options.port, ComputeServer(cloud, control)) as stopped:
        print(f"Compute Engine emulator ready on {links.root}", flush=True)
        stopped.wait()
        _power_off_all(cloud, tpus)
    return 0


def _project_number(project_id: str) -> int:
    """Return a number of 12 digits, as Google's are, the same in every run."""
    return 10**11 + stable_id(project_id) % (9 * 10**11)


def _power_off_all(cloud: Cloud, tpus: TpuCloud) -> None:
    instances = list(cloud.instances.list_all())
    for node in tpus.list_all():
        instances += node.hosts
    for instance in instances:
        if instance.vm is not None:
            instance.vm.power_off()


if __name__ == "__main__":
    sys.exit(main())
