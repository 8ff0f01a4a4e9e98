"""The agent: keeps one VM doing what its directive says, and reports what happens to the program.

The *directive*, in the VM's metadata, is the order of the control plane: run, hold, save or stop
one *incarnation*, which is one execution of the program. A pair such as (1,2) names it: attempt 1
of the job, incarnation 2. Under `hold`, all members of a synchronous job wait for each other. The
agent answers with events: `vm-ready` when an incarnation starts, or could start under `hold`;
`replica-exit` when its program has ended.

Standard library only, Python 3.8 and later, because it has to run on whatever image the user chose.
It is one zip application (`trainmaster/packaging/agent_archive.py`), which ``startup.sh``
downloads, verifies and starts. Its wire contract is in ``docs/interfaces.md``, sections 2 and 3. It
listens on loopback for the program's progress, and on one UDP port for the peers of a synchronous
job. It holds no credentials. It reads from the metadata server, Cloud Storage and Secret Manager,
and writes to Pub/Sub, Cloud Logging, Cloud Monitoring and a guest attribute.

Other threads only watch and transfer. Every decision is taken on the main thread, one at a time, by
``Agent``::

    metadata ── directive ────┐                     ┌──► Program, in its own session;
    metadata ── maintenance ──┤                     │      output forwarded line by line
    metadata ── preempted ────┼──► Inbox ──► Agent ─┼──► Setup: packages or image once per VM,
    program ended ────────────┤   (main thread)     │      secrets at each start
    setup done ───────────────┤                     └──► EventReporter ──► Pub/Sub, in order,
    SIGTERM ──────────────────┘                            repeated until accepted

The control is level-triggered: ``Agent._reconcile`` compares the latest directive with what is
running and takes the next step, in whatever order events arrive::

    directive run (1,1)       run (1,2)
    ──────┬──────────────────────┬──────────────────────────────────────────►
          │ setup │ vm-ready (1,1)  SIGTERM ≤ grace_s SIGKILL │ vm-ready (1,2)
                  └─ program ────────────────────────────────┘ └─ program ──
                                     (ended on purpose: no replica-exit)

    directive run (1,1)       hold (1,2)                        run (1,2)
    ──────┬──────────────────────┬──────────────────────────────────┬───────►
          └─ program ──── SIGTERM ≤ grace_s SIGKILL │ vm-ready (1,2)  └─ program ──
                                     (with `ended`, if the program had ended by itself)

Guarantees:

- Each (attempt, incarnation) is started at most once on a VM, even after crashes of the agent and
  reboots: the state file records the start before the program starts.
- The exit of a program that was not ended on purpose is reported until it is accepted, or until a
  newer directive supersedes it. The next vm-ready under `hold` reports it then.
- A vm-ready under `hold` means that nothing that was started on this VM before runs any more,
  whatever became of its parents and its environment; after a crash of the agent, nothing that
  still has its mark.
- A failure of the control plane or of Pub/Sub never ends a program.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainmaster.agent.channel.peer_channel import PeerChannel
from trainmaster.agent.control.agent import ANOTHER_JOB, Agent
from trainmaster.agent.control.launcher import Launcher
from trainmaster.agent.control.run_state import RunState
from trainmaster.agent.control.stall_watch import Surroundings
from trainmaster.agent.control.state_file import StoredState
from trainmaster.agent.google_http.google_api import GoogleApi
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.identity import read_identity, state_owner
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.model.vm_config import AgentIdentity
from trainmaster.agent.observation import observe
from trainmaster.agent.program.container_engine import ContainerEngine
from trainmaster.agent.program.devices import has_gpu
from trainmaster.agent.program.family import adopt_orphans
from trainmaster.agent.reporting.cloud_log import CloudLog
from trainmaster.agent.reporting.events import EventReporter
from trainmaster.agent.reporting.heartbeat import Heartbeat
from trainmaster.agent.reporting.log_buffer import BUFFER_BYTES_MAX, LogBuffer
from trainmaster.agent.reporting.log_origin import LogOrigin
from trainmaster.agent.reporting.publisher import Publisher
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup.cloud_storage import StorageReader
from trainmaster.agent.setup.machine_report import describe_machine
from trainmaster.agent.setup.previous_containers import (
    remember_first_objects,
    remove_left_objects,
)
from trainmaster.agent.setup.previous_tenure import clean, remember_first_files
from trainmaster.agent.setup.setup import Setup
from trainmaster.agent.setup.setup_errors import Retrier
from trainmaster.agent.shutdown.paid_time import PaidTime
from trainmaster.agent.shutdown.power_off import power_off
from trainmaster.agent.shutdown.self_delete import SelfDelete
from trainmaster.agent.shutdown.vm_shutdown_notice import GPU_NOTICE_S, NOTICE_S
from trainmaster.agent.utilization.gpus import Gpus
from trainmaster.agent.utilization.monitor import point_writer
from trainmaster.agent.utilization.network import read_traffic
from trainmaster.agent.workspace import EMULATED_VM, Workspace

LOG_WRITE_S = 10.0  # timeout of one write to Cloud Logging
LOG_MEMORY_PARTS = 16  # lines that wait for Cloud Logging take at most this part of the memory


def main(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run ``agent.pyz WORK_DIRECTORY``.

    Exit status 0 means that the agent must not be started again, and 76 that another job has taken
    the VM.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))  # until the agent handles it
    work = create_work_folder(argv)
    console = Console()
    metadata = MetadataServer(environ.get("GCE_METADATA_HOST") or "metadata.google.internal")
    identity = read_identity(metadata, console)
    config = identity.config
    inbox = Inbox(metadata)
    workspace = Workspace(work, environ, console, adopt_orphans(work, inbox.start_thread))
    leftover = take_over(identity, workspace)

    def api(name: str, endpoint_variable: str) -> GoogleApi:
        return GoogleApi(environ.get(endpoint_variable), f"https://{name}.googleapis.com", metadata)

    publisher = Publisher(api("pubsub", "TRAINMASTER_PUBSUB_ENDPOINT"), metadata, console)
    reporter = EventReporter(identity, publisher, console, inbox)
    run_state = RunState(work / "state", state_owner(identity), reporter, console)
    log = create_cloud_log(identity, api("logging", "TRAINMASTER_LOGGING_ENDPOINT"), run_state)
    if log is not None:
        console.copy_to(log)
        log.start(inbox.start_thread)
    end_machine = choose_machine_end(
        identity, api("tpu", "TRAINMASTER_TPU_ENDPOINT"), workspace, inbox
    )

    def find_engine() -> ContainerEngine | None:
        if config.container is None:
            return None
        return ContainerEngine.find(environ, identity.instance.name)

    console.log(describe_machine(metadata, ContainerEngine.find(environ, identity.instance.name)))
    storage = StorageReader(api("storage", "STORAGE_EMULATOR_HOST"), Retrier(console))
    secret_manager = api("secretmanager", "TRAINMASTER_SECRETS_ENDPOINT")
    monitoring = api("monitoring", "TRAINMASTER_MONITORING_ENDPOINT")
    observation = observe(
        identity,
        workspace,
        run_state,
        metadata,
        storage=storage,
        monitoring=monitoring,
        # The launcher exists by the time of the first reading.
        processes=lambda: launcher.processes(),  # noqa: PLW0108
    )
    observation.start(inbox)
    setup = Setup(
        identity,
        workspace,
        metadata=metadata,
        storage=storage,
        secret_manager=secret_manager,
        find_engine=find_engine,
        leftover=leftover,
    )
    launcher = Launcher(
        identity,
        workspace,
        find_engine,
        metric=observation.metric,
        gcs=setup.gcs,
        progress=observation.reported_progress,
        on_program_end=observation.on_program_end,
        store=storage.store_text,
        is_empty=storage.is_empty if identity.is_primary else None,
    )
    channel = None
    if config.channel is not None:
        channel = PeerChannel(
            config.channel, identity, inbox, console, lambda: run_state.last_started
        )
        inbox.start_thread(channel.run)
    monitor = observation.monitor
    write_point = point_writer(identity, monitoring) if monitor is not None else None
    inbox.post(Heartbeat(metadata, inbox, console, lambda: launcher.is_stuck, write_point).beat)
    agent = Agent(
        identity=identity,
        inbox=inbox,
        reporter=reporter,
        run_state=run_state,
        setup=setup,
        launcher=launcher,
        console=console,
        notice_s=GPU_NOTICE_S if has_gpu() else NOTICE_S,
        channel=channel,
        surroundings=find_surroundings(environ, console),
        paid_time=PaidTime(inbox, console, metadata.time, end_machine),
    )
    if monitor is not None:
        inbox.start_thread(functools.partial(monitor.run, agent.stall_watch.quiet))
    agent.run()
    if monitor is not None:
        monitor.await_last_report()
    return leave(agent, launcher)


def create_work_folder(argv: Sequence[str]) -> Path:
    """Return the folder that the command line names."""
    work = Path(argv[1]).resolve()
    work.mkdir(parents=True, exist_ok=True)
    return work


def take_over(identity: AgentIdentity, workspace: Workspace) -> str:
    """Remove what an earlier job has left on this VM; return what cannot be removed.

    Several jobs may use a VM, one after the other. The tenure is the number of the job, from 1. For
    the first one, what the VM has of its own is recorded instead, if another job may follow (the VM
    has a `tenure_key`). Nothing is removed after a crash of the agent: once a directive of this job
    is stored, what is on the VM belongs to this job.
    """
    config = identity.config
    has_own_engine = not workspace.environ.get(EMULATED_VM)
    engines = ContainerEngine.find_all(workspace.environ, identity.instance.name)
    if config.tenure == 1:
        if config.tenure_key:
            remember_first_files(workspace)
        if config.tenure_key and has_own_engine:
            remember_first_objects(workspace, engines)
        return ""
    if StoredState.load(workspace.work / "state", state_owner(identity)).desired is not None:
        return ""

    left: list[str] = []

    def remove_containers() -> int:
        if not has_own_engine:
            return sum(engine.remove_all() for engine in engines)
        removed, findings = remove_left_objects(workspace, engines)
        left.extend(findings)
        return removed

    return "; ".join(filter(None, [clean(workspace, remove_containers), *left]))


def leave(agent: Agent, launcher: Launcher) -> int:
    """Return the exit status of this process.

    If another job has taken the VM, first end the processes that programs have left: only their
    parent, which is this process, finds them all.
    """
    if agent.exit_status == ANOTHER_JOB:
        launcher.clean_up()
    return agent.exit_status


def choose_machine_end(
    identity: AgentIdentity, tpu: GoogleApi, workspace: Workspace, inbox: Inbox
) -> Callable[[], None]:
    """Return the function that ends this machine.

    Cloud TPU does not limit how long a node exists: for a node, also start the thread that deletes
    it after `fuse_s`.
    """
    config = identity.config
    if config.fuse_s is None:
        return functools.partial(power_off, workspace)
    node = f"projects/{config.project}/locations/{identity.vm.zone}/nodes/{identity.vm.name}"
    self_delete = SelfDelete(node, config.fuse_s, tpu, workspace)
    inbox.start_thread(self_delete.run)
    return self_delete.delete


def find_surroundings(environ: Mapping[str, str], console: Console) -> Surroundings:
    """Return the readings of the machine's activity outside the program's processes."""
    if environ.get(EMULATED_VM):  # the VMs of the local stack share one machine
        return Surroundings()
    gpus = Gpus(environ, console.log)
    return Surroundings(lambda: sum(dataclasses.astuple(read_traffic())), gpus.may_work)


def create_cloud_log(
    identity: AgentIdentity, logging: GoogleApi, run_state: RunState
) -> CloudLog | None:
    """Return the copy of the output in Cloud Logging; None if the output is not copied.

    It reports its own errors on a console that is not copied to itself.
    """
    origin = LogOrigin.of(identity)
    if origin is None:
        return None

    def post(body: bytes) -> None:
        logging.call("/v2/entries:write", timeout=LOG_WRITE_S, body=body)

    memory_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    buffer = LogBuffer(bytes_max=min(BUFFER_BYTES_MAX, memory_bytes // LOG_MEMORY_PARTS))
    return CloudLog(origin, post, buffer, lambda: run_state.last_started, Console().log)
