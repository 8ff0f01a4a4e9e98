"""One machine with the product's own agent in virtual time: a VM, or one host of a TPU slice.

What runs here is the agent's own code: the control loop, its state file, saves, stalls, the notice
of a shutdown, the outbox and the peer channel. This module stands for what the agent works with:
the metadata server, Pub/Sub, UDP, the set-up and the process of the program.
"""

from __future__ import annotations

import fcntl
import json
import os
import traceback
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Final, cast

from tests.explorer.causes import REBOOT, VM
from tests.explorer.channels import VirtualChannel
from tests.explorer.processes import Process, VirtualLauncher
from tests.explorer.threads import Threads, VirtualInbox
from trainmaster.agent.control.agent import ANOTHER_JOB, Agent
from trainmaster.agent.control.launcher import Launcher
from trainmaster.agent.control.run_state import RunState
from trainmaster.agent.control.state_file import StoredState
from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.identity import state_owner
from trainmaster.agent.model.results import SetupFailure
from trainmaster.agent.model.vm_config import AgentIdentity, SliceHost, VmConfig, VmRef
from trainmaster.agent.reporting.events import EventReporter
from trainmaster.agent.reporting.publisher import Event, Publisher
from trainmaster.agent.reporting.serial_console import Console, Stream
from trainmaster.agent.setup.setup import Setup
from trainmaster.agent.shutdown.paid_time import PaidTime
from trainmaster.agent.shutdown.vm_shutdown_notice import NOTICE_S
from trainmaster.core.model.vm import VmStatus

if TYPE_CHECKING:
    from tests.explorer.cloud import ExploredVm
    from tests.explorer.world import World

DIRECTIVE: Final = "instance/attributes/trainmaster-directive"
NOTICES: Final = {
    "preemption": ("instance/preempted", "TRUE"),
    "maintenance": ("instance/maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE"),
}
"""Which metadata entry announces the end of a VM, and its value then."""
UPCOMING: Final = "instance/upcoming-maintenance?alt=json"
NO_FILE: Final = Path("no-such-folder/state.json")
DISK_FILLS_S: Final = (30.0, 300.0)
"""After the start of the VM. Programs fill it."""
BOOT_S: Final = (3.0, 15.0)
RESTART_S: Final = (1.0, 15.0)
"""From the crash of an agent to the next one: the startup script starts it again."""
METADATA_S: Final = (0.02, 0.5)
SLOW_METADATA_S: Final = (5.0, 90.0)
SIGTERM_S: Final = (0.0, 2.0)
SIGNAL_SKEW_S: Final = (-0.25, 0.25)
BOTH_SIGNALLED: Final = 0.3
"""Share of the shutdowns that signal the program, too."""
PUBLISH_S: Final = (0.01, 0.1)
SETUP_S: Final = (1.0, 8.0)
SETUP_AGAIN_S: Final = (0.05, 0.5)
SHUTDOWN_S: Final = (2.0, 30.0)
HEARTBEAT_S: Final = 30.0
UNFIT: Final = {"type": "UnfitMachine", "message": "7 of 8 GPUs answer", "frame": ""}
DOWNLOAD_FAILED: Final = {"type": "DownloadError", "message": "503", "frame": ""}


class AgentHost:
    """The machine. What stands on its disk survives crashes and reboots."""

    def __init__(self, vm: ExploredVm, host: int | None) -> None:
        self.vm = vm
        self.host = host
        """Number of this host of a slice; None if the slice has one, and for VMs."""
        self.world: World = vm.world
        profile = vm.world.profile
        self.skew_s = self.world.between((-profile.agent_skew_s, profile.agent_skew_s))
        if self.world.chance(profile.bad_clock):
            self.skew_s = self.world.rng.choice((-1, 1)) * self.world.between((30.0, 120.0))
        self.stored = StoredState("")
        """The contents of the agent's state file, unless the disk becomes full."""
        self.disk: Disk | None = None
        """The disk, if it becomes full."""
        self.is_unfit = False
        self.fails_setup = False
        """Whether it cannot be set up any more."""
        if self.world.chance(profile.full_disk):
            self.disk = Disk()
            self.world.at_end.append(self.disk.close)
            self.world.within(DISK_FILLS_S, self._fill_disk, self.disk)
        self.is_on = False
        self.on_since_s = self.off_since_s = self.world.now_s
        self.silent_since_s: float | None = None
        """When the agent stopped its heartbeat, because it cannot end a program."""
        self.is_vm_ending = False
        """Whether the guest shuts down."""
        self.process: Process | None = None
        """The program that was started last, while its process exists."""
        self.delivered: tuple[int, int, int, str] | None = None
        """Tenure, attempt, incarnation and action of the directive that reached an agent last."""
        self.channel: VirtualChannel | None = None
        self._metadata: dict[str, str] = {}
        self._watchers: dict[str, Callable[[str], None]] = {}
        self._seen: dict[str, str] = {}
        """The values that the running agent's watchers have received."""
        self.on_sigterm: Callable[[], None] = lambda: None
        self._threads = Threads(self.world)

    # What happens to the machine.

    def boot(self) -> None:
        """Start the machine and its agent, unless the VM is gone, hung or not running."""
        if self.vm.is_gone or self.vm.is_hung or self.vm.status is not VmStatus.RUNNING:
            return
        if not self.is_on:
            self.is_on = True
            self.on_since_s = self.world.now_s
            self.silent_since_s = None
            self._start_agent(BOOT_S)

    def _start_agent(self, span_s: tuple[float, float]) -> None:
        self._threads.end()
        self._threads = Threads(self.world)
        self._watchers.clear()
        self._seen.clear()
        self.on_sigterm = lambda: None
        threads = self._threads
        self.world.within(span_s, lambda: threads.start(partial(self._run_agent, threads)))
        rate = self.world.profile.agent_crash_per_hour
        if rate and self.world.has_faults:
            crash_s = self.world.rng.expovariate(rate / 3600)
            self.world.after(span_s[1] + crash_s, self._crash, threads)

    def _crash(self, threads: Threads) -> None:
        """The agent's process ends. The program goes on until the next agent finds it."""
        if self.world.has_faults and not threads.is_over and not self.is_vm_ending:
            self.world.log("agent crash", self.vm)
            self.vm.job.note_fault(self.vm, REBOOT)
            self._start_agent(RESTART_S)

    def _fill_disk(self, disk: Disk) -> None:
        """Programs have filled the disk. None has run before the agent has stored its state."""
        if disk.is_empty:
            self.world.within(DISK_FILLS_S, self._fill_disk, disk)
            return
        disk.fill()
        self.world.log("full disk", self.vm)

    def power_off(self, cause: str) -> None:
        """Stop the machine at once. `cause`: why its program ends."""
        if not self.is_on:
            return
        self.off_since_s = self.world.now_s
        self.is_on = False
        self._threads.end()
        if self.process is not None:
            self.process.vanish(cause)

    @property
    def last_beat_s(self) -> float:
        """Time of the last heartbeat that was written."""
        until_s = self.world.now_s
        if not self.is_on:
            until_s = self.off_since_s
        elif self.silent_since_s is not None:
            until_s = self.silent_since_s
        return until_s - (until_s - self.on_since_s) % HEARTBEAT_S

    def announce(self, cause: str) -> None:
        """The metadata server announces the end of the VM."""
        path, value = NOTICES[cause]
        self._metadata[path] = value
        self._notify(path)

    def announce_early(self, ahead_s: float) -> None:
        """Let the metadata server announce maintenance that begins in `ahead_s` seconds."""
        at = self.world.clock() + timedelta(seconds=ahead_s)
        self._metadata[UPCOMING] = json.dumps({"window_start_time": at.isoformat()})
        self._notify(UPCOMING)

    def withdraw_maintenance(self) -> None:
        """Let the metadata server announce no maintenance any more."""
        for path in (NOTICES["maintenance"][0], UPCOMING):
            self._metadata.pop(path, None)
            self._notify(path)

    def shut_down(self) -> None:
        """The guest shuts down: the agent gets SIGTERM, and maybe so does the program."""
        if not self.is_on:
            return
        self.is_vm_ending = True
        threads = self._threads
        world = self.world
        signal_s = world.between(SIGTERM_S)
        world.after(signal_s, lambda: threads.is_over or self.on_sigterm())
        if self.process is not None and world.rng.random() < BOTH_SIGNALLED:
            program_s = signal_s + world.between(SIGNAL_SKEW_S)
            exit_ = self.process.program.job.programs.exit
            world.after(program_s, exit_, self.process.program, {"signal": 15}, VM)

    # The metadata server.

    def watch(self, path: str, handler: Callable[[str], None]) -> None:
        self._watchers[path] = handler
        self.world.within(METADATA_S, self._notify_now, path, self._threads)

    def wake(self) -> None:
        """The directive has changed."""
        self._notify(DIRECTIVE)

    def _notify(self, path: str) -> None:
        is_slow = self.world.chance(self.world.profile.slow_metadata)
        span_s = SLOW_METADATA_S if is_slow else METADATA_S
        self.world.within(span_s, self._notify_now, path, self._threads)

    def _notify_now(self, path: str, threads: Threads) -> None:
        if threads.is_over or path not in self._watchers:
            return
        value = self._metadata.get(path, "NONE")
        if path == DIRECTIVE:
            directive = self.vm.directive
            value = json.dumps(directive.to_metadata())
            self.delivered = (
                directive.tenure,
                directive.attempt,
                directive.incarnation,
                directive.action.value,
            )
        if self._seen.get(path) != value:
            self._seen[path] = value
            self._watchers[path](value)

    # The agent.

    def _run_agent(self, threads: Threads) -> None:
        try:
            agent = self._create_agent(threads)
            agent.run()
            if agent.exit_status == ANOTHER_JOB:
                self._start_agent(RESTART_S)  # by the startup script
        except Exception as error:  # noqa: BLE001 - a bug of the agent, which is reported with its seed
            where = traceback.format_exc(limit=-4)
            self.world.violate("exception in an agent", self.vm, type(error).__name__, error, where)
            self._start_agent(RESTART_S)

    def _create_agent(self, threads: Threads) -> Agent:
        identity = self._identity()
        config = identity.config
        console = VirtualConsole(self)
        inbox = VirtualInbox(self, threads)
        publisher = VirtualPublisher(self, threads)
        reporter = EventReporter(identity, cast("Publisher", publisher), console, inbox)
        owner = state_owner(identity)
        if config.tenure > 1 and self.stored.instance_id != owner:
            self._clean()
        run_state = VirtualRunState(self, owner, reporter, console)
        job = self.vm.cloud.job_of(config.job_id)
        self.channel = None
        if config.channel is not None:
            self.channel = VirtualChannel(
                config.channel, identity, inbox, console, lambda: run_state.last_started
            )
            self.channel.connect(self, threads)
        return Agent(
            identity=identity,
            inbox=inbox,
            reporter=reporter,
            run_state=run_state,
            setup=cast("Setup", VirtualSetup(self, threads)),
            launcher=cast("Launcher", VirtualLauncher(self, job, config.tenure, threads)),
            console=console,
            notice_s=NOTICE_S,
            channel=self.channel,
            paid_time=PaidTime(
                inbox, console, lambda: self.world.clock().isoformat(), self._end_unpaid
            ),
        )

    def _clean(self) -> None:
        """End what the last job has left. What cannot be ended makes the machine unfit."""
        if self.process is not None:
            self.process.kill()
        self.is_unfit |= self.process is not None

    def _end_unpaid(self) -> None:
        """The agent shuts the machine down, because its job's `maxCost` pays for no more time."""
        self.vm.fail("unpaid")
        self.vm.shut_down(self.world.between(SHUTDOWN_S), stays=True)

    def _identity(self) -> AgentIdentity:
        vm = self.vm
        config = _parse_config(vm.metadata["trainmaster-vm-config"])
        node = VmRef(vm.name, vm.zone, vm.instance_id)
        if self.host is None:
            return AgentIdentity(node, config, node, project_number="1")
        addresses = [f"{vm.name}-{number}" for number in range(vm.hosts)]
        instance = VmRef(addresses[self.host], vm.zone, f"{vm.instance_id}-{self.host}")
        return AgentIdentity(node, config, instance, SliceHost(self.host, addresses))


@lru_cache(maxsize=64)
def _parse_config(text: str) -> VmConfig:
    return VmConfig.parse(text)


class VirtualConsole(Console):
    """The serial console of a machine: its lines are in the log of the history."""

    def __init__(self, host: AgentHost) -> None:
        super().__init__(-1)
        self._host = host

    def log(self, text: str, stream: Stream = Stream.AGENT) -> None:
        del stream
        self._host.world.log("agent of", self._host.vm, text)


class Disk:
    """A state file in memory that can no longer grow once the disk is full."""

    def __init__(self) -> None:
        self._file = os.memfd_create("state", os.MFD_ALLOW_SEALING)
        self.path = Path(f"/proc/self/fd/{self._file}")

    @property
    def is_empty(self) -> bool:
        return os.fstat(self._file).st_size == 0

    def fill(self) -> None:
        fcntl.fcntl(self._file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_GROW)

    def close(self) -> None:
        os.close(self._file)


class VirtualRunState(RunState):
    """Keeps the contents of the state file in memory, unless the disk becomes full."""

    def __init__(
        self, host: AgentHost, instance_id: str, reporter: EventReporter, console: Console
    ) -> None:
        file = host.disk.path if host.disk is not None else NO_FILE
        super().__init__(file, instance_id, reporter, console)
        self._host = host
        if host.disk is None and host.stored.instance_id == instance_id:
            self._state = _copy(host.stored)

    def _save(self) -> None:
        if self._host.disk is not None:
            super()._save()
        else:
            self._host.stored = _copy(self._state)


def _copy(state: StoredState) -> StoredState:
    return replace(state, announced=list(state.announced))


class VirtualPublisher:
    """Pub/Sub refuses an event, or accepts it, and the agent may crash before it knows."""

    def __init__(self, host: AgentHost, threads: Threads) -> None:
        self._host = host
        self._threads = threads

    def publish(self, event: Event) -> None:
        world = self._host.world
        if world.chance(world.profile.refused):
            raise HttpError(HTTPStatus.SERVICE_UNAVAILABLE, "try again")
        topic = event.topic.rpartition("/")[2]
        self._host.vm.cloud.publish(topic, json.dumps(event.body).encode(), {})
        self._threads.pause(world.between(PUBLISH_S))


class VirtualSetup:
    """A set-up of the machine that takes virtual time, and may fail."""

    def __init__(self, host: AgentHost, threads: Threads) -> None:
        self._host = host
        self._threads = threads
        self.preflight = SimpleNamespace(finding="")

    def cancel(self) -> None:
        """A set-up that shuts down with its VM reports nothing."""

    def prepare(self, *, is_installed: bool) -> Mapping[str, str] | SetupFailure:
        host = self._host
        world = host.world
        profile = world.profile
        span_s = SETUP_AGAIN_S if is_installed else SETUP_S
        if not is_installed and world.chance(profile.slow_setup):
            span_s = profile.slow_setup_s
        self._threads.pause(world.between(span_s))
        host.is_unfit |= world.chance(profile.unfit)
        if host.is_unfit:
            host.vm.job.note_fault(host.vm, "unfit")
            return SetupFailure("setup", exit_status=None, error=UNFIT, tail=UNFIT["message"])
        if self._host.fails_setup or world.chance(profile.setup_fail):
            host.vm.job.note_fault(host.vm, "setup")
            return SetupFailure("setup", exit_status=None, error=DOWNLOAD_FAILED, tail="503")
        return {}
