"""The agent: keeps one VM doing what its directive says, and reports what happens to the program.

Standard library only, Python 3.8 and later, because it has to run on whatever image the user chose. It is delivered in
instance metadata as one zip application (`shared/wiring/agent_archive.py`) and started by ``startup.sh``;
``docs/interfaces.md`` sections 2 and 3 are its wire contract. It listens on no port and holds no credential: it asks
(metadata, Cloud Storage, Secret Manager) and tells (Pub/Sub, Cloud Logging).

Threads only watch and carry; every decision is taken on the main thread, one at a time, by ``Agent``::

    metadata ── directive ────┐                        ┌──► Program (own session; output forwarded line by line)
    metadata ── maintenance ──┤                        │
    metadata ── preempted ────┼──► Inbox ──► Agent ────┼──► Setup (packages or image once per VM, secrets at each start)
    Program ended ────────────┤   (main thread)        │
    Setup ended ──────────────┤                        └──► Report ──► Pub/Sub, in order, again and again until accepted
    SIGTERM ──────────────────┘

What is desired is a level, not a sequence: ``Agent._reconcile`` compares the latest directive with what is running and
takes the next step, whatever order things arrive in::

    directive run (1,1)       run (1,2)
    ──────┬──────────────────────┬──────────────────────────────────────────►
          │ setup │ vm-ready (1,1)  SIGTERM ≤ grace_s SIGKILL │ vm-ready (1,2)
                  └─ program ────────────────────────────────┘ └─ program ──
                                     (ended on purpose: no replica-exit)

Promises: a (attempt, incarnation) is started at most once in the incarnation of a VM, agent crashes and reboots included
(written to the state file before the program starts); the exit of a program that was not ended on purpose is told
until it is accepted or overtaken by a newer directive; a dead control plane, or a dead Pub/Sub, ends no program.
"""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from shared.agent.control.agent import Agent
from shared.agent.control.inbox import Inbox
from shared.agent.control.run_state import Lives
from shared.agent.control.slice_hosts import ask_host, ask_node
from shared.agent.control.vm_config import Gang, ReplicaId, Vm
from shared.agent.control.workspace import Place
from shared.agent.http.calls import HttpError, backoffs
from shared.agent.http.metadata_server import Google, Metadata
from shared.agent.program.container_engine import Engine
from shared.agent.program.launcher import Launcher
from shared.agent.reporting.cloud_log import CloudLog, Origin
from shared.agent.reporting.events import Report
from shared.agent.reporting.log_buffer import LogBuffer
from shared.agent.reporting.publisher import Publisher
from shared.agent.reporting.serial_console import Console
from shared.agent.reporting.summary_metric import Summaries
from shared.agent.reporting.trial_metric import Metric
from shared.agent.setup.cloud_storage import Objects
from shared.agent.setup.failure import Patience
from shared.agent.setup.setup import Setup
from shared.agent.shutdown.self_delete import Fuse

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

WRITE_S = 10.0  # one batch to Cloud Logging


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """``agent.pyz WORK_DIRECTORY``. 0: over, do not start it again."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until there is something to end
    work = Path(argv[1]).resolve()
    work.mkdir(parents=True, exist_ok=True)
    console = Console()
    metadata = Metadata(environ.get("GCE_METADATA_HOST") or "metadata.google.internal")
    replica_id = ask_who_i_am(metadata, console)
    pubsub = Google(environ.get("PUBSUB_EMULATOR_HOST"), "https://pubsub.googleapis.com", metadata)
    storage = Google(environ.get("STORAGE_EMULATOR_HOST"), "https://storage.googleapis.com", metadata)
    secret_manager = Google(
        environ.get("TRAINMASTER_SECRETS_ENDPOINT"), "https://secretmanager.googleapis.com", metadata
    )
    place = Place(work, environ, console)
    objects = Objects(storage, Patience(console))
    engine = Engine.find(environ, replica_id.instance.name) if replica_id.gang.container is not None else None
    inbox = Inbox(metadata)
    report = Report(replica_id, Publisher(pubsub, metadata, console), console, inbox)
    incarnations = Lives(work / "state.json", replica_id.instance.instance_id, report, console)
    logging = Google(environ.get("TRAINMASTER_LOGGING_ENDPOINT"), "https://logging.googleapis.com", metadata)
    log = log_of(replica_id, logging, incarnations)
    if log is not None:
        console.copy_to(log)
        inbox.thread(log.carry)
    if replica_id.gang.fuse_s is not None:
        tpu = Google(environ.get("TRAINMASTER_TPU_ENDPOINT"), "https://tpu.googleapis.com", metadata)
        node = f"projects/{replica_id.gang.project}/locations/{replica_id.vm.zone}/nodes/{replica_id.vm.name}"
        inbox.thread(Fuse(node, replica_id.gang.fuse_s, tpu, place).burn)
    Agent(
        gang=replica_id.gang,
        inbox=inbox,
        report=report,
        incarnations=incarnations,
        setup=Setup(
            replica_id, place, metadata=metadata, objects=objects, secret_manager=secret_manager, engine=engine
        ),
        launcher=Launcher(replica_id, place, engine, Metric(replica_id, work, Summaries(objects, place))),
        console=console,
    ).run()
    return 0


def log_of(replica_id: ReplicaId, logging: Google, incarnations: Lives) -> CloudLog | None:
    """None where the output is copied nowhere. It tells of its own errors past the console it copies."""
    origin = Origin.of(replica_id)
    if origin is None:
        return None

    def post(body: bytes) -> None:
        logging.call("/v2/entries:write", timeout=WRITE_S, body=body)

    return CloudLog(origin, post, LogBuffer(), lambda: incarnations.begun, Console().say)


def ask_who_i_am(metadata: Metadata, console: Console) -> ReplicaId:
    """Asks until the metadata server answers. Raises where the gang cannot be read."""
    for wait in backoffs(10.0):
        try:
            instance = Vm(
                name=metadata.get("instance/name").strip(),
                zone=metadata.get("instance/zone").strip().rsplit("/", 1)[-1],
                instance_id=metadata.get("instance/id").strip(),
            )
            gang = Gang.parse(metadata.get("instance/attributes/trainmaster-vm-config"))
            vm = instance if instance.name in gang.vm_names else ask_node(metadata, instance)
            host = ask_host(metadata) if gang.hosts > 1 else None
            number = metadata.get("project/numeric-project-id").strip() if vm is instance else ""
        except HttpError as error:
            console.say(f"The metadata server does not answer yet ({error}).")
            time.sleep(wait)
            continue
        return ReplicaId(vm, gang, instance, host, number)
    raise AssertionError("backoffs never end")
