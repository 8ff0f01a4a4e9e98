"""A model of the agent, the process on each VM that runs a replica's program: it follows the
directive in the VM's metadata and reports events.

`SimVm` starts it, wakes it and powers it off. It has the protocol of `agent.control.agent`: same
state on disk, same event queues, same order. A `Key` names one execution of the program, by attempt
(execution of the whole job) and incarnation (execution of this program within the attempt).

The directive says `run`, `stop` or `hold`. Under `hold` the agent ends the program and reports
vm-ready, until all members of the job can start the next incarnation together.

The real agent consists of threads, processes and HTTP calls, which cannot run in virtual time.
`tests/integration/agent` holds the real one to the same promises (docs/interfaces.md sections 2 and
3).
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from trainmaster.core.model.vm import Directive, DirectiveAction
from trainmaster.messaging import topics
from trainmaster_local.simulator.world.bus import SimBus
from trainmaster_local.simulator.world.context import Context
from trainmaster_local.simulator.world.event_sender import Event, EventSender, Key, event_body
from trainmaster_local.simulator.world.programs import Exit, Program, Training
from trainmaster_local.simulator.world.vm import SimVm

# Shortest and longest time, in virtual seconds
BOOT_S: Final = (4.0, 15.0)
"""From the start of the VM to that of the agent."""
SETUP_S: Final = (1.0, 6.0)
"""Time in which the agent prepares the VM before the first program."""
DIRECTIVE_S: Final = (0.02, 0.3)
"""Delay until a new directive is read."""
NOTICE_READ_S: Final = (0.1, 2.0)
"""Delay until the announcement of the VM's end is read."""
STOP_S: Final = (0.1, 3.0)
"""Time that it takes to stop a program."""
CLEAN_S: Final = (0.5, 3.0)
"""From the end of the last job's program to the start of the next job's agent."""
CHECKPOINT_S: Final = (0.5, 10.0)
"""Time that a program takes to save a checkpoint before its VM ends."""

FIRST_READY_REPEAT_S: Final = 20.0
"""Time until the first repetition of a vm-ready under `hold`. It doubles with each repetition."""
READY_REPEAT_S_MAX: Final = 600.0
"""Longest time between two of these repetitions."""
CHECKPOINTS_ON_NOTICE: Final = 0.5
"""Share of the programs that save a checkpoint and exit when the end of the VM is announced."""


@dataclass(slots=True)
class _Disk:
    """State that survives a crash of the agent and a reboot. A new VM starts with an empty disk."""

    started: Key | None = None
    """The last incarnation that this VM started."""
    closed: bool = True
    """Whether a directive ended that incarnation, so that its end needs no report."""
    exit: Exit | None = None
    """How and when that incarnation ended by itself, until a newer program starts."""
    ready: Key | None = None
    """The incarnation for which vm-ready was published under `hold`."""
    desired: Directive | None = None
    """The newest directive that was read."""
    setup_done: bool = False
    """Whether the VM is prepared for programs."""
    announced: list[str] = field(default_factory=list)
    """Causes of VM loss that were reported."""


class SimAgent:
    """The agent of one VM, or of one host of a slice.

    Each host has its own agent, with its own disk.
    """

    def __init__(
        self,
        vm: SimVm,
        host: int | None,
        training: Training,
        bus: SimBus,
        context: Context,
        leave_vm: Callable[[SimVm], None] = lambda _: None,
    ) -> None:
        """`host`: number of the slice's host; None: a VM, which has one agent.

        `leave_vm`: called once nothing of this job runs on a VM that another job has taken.
        """
        self._vm = vm
        self._job_id = vm.job_id
        directive = vm.observed.directive
        self._tenure = directive.tenure if directive else 1  # grows when another job takes the VM
        self._leave_vm = leave_vm
        self._host = host
        self._training = training
        self._bus = bus
        self._context = context
        self._disk = _Disk()
        self._boots = 0  # actions that were planned before the last boot are dropped
        self._is_up = False
        self.off_since_s: float | None = None
        """Virtual time since which it writes nothing, because its VM is off or hangs; None: it
        writes.
        """
        self._agent_started_at = context.scheduler.clock()
        self._reset()

    def _reset(self) -> None:
        """Forget all that a process of the agent has in memory."""
        self.program: Program | None = None
        self._running: Key | None = None
        """The incarnation of `program`."""
        self._unwanted = False
        """Whether a directive has ended that incarnation."""
        self._setting_up = False
        self._stopping = False
        """Whether the operating system shuts down."""
        self._has_settled_past = False
        """Whether the incarnation before this boot needs no report any more."""
        self._end_is_announced = False
        self._events = EventSender(self._bus, self._context, self._plan_within)
        self._fault_events = EventSender(self._bus, self._context, self._plan_within)
        self._known_causes = list(self._disk.announced)
        """Causes of VM loss that are known, reported or not."""
        self._unsent_causes: list[str] = []
        """Causes that are reported after the first directive, whose incarnation they name."""
        self._is_stopping_program = False
        self._is_leaving = False
        self._repeats_ready_for: Key | None = None
        """The incarnation for which vm-ready is repeated under `hold`."""
        self._may_start_at = 0.0
        self._started_at = 0.0

    # What happens to the agent because of its VM.

    def boot(self) -> None:
        """The VM has started."""
        self._boots += 1
        self._is_up, self.off_since_s = True, None
        self._reset()
        self._plan_within(BOOT_S, self._begin)

    def _begin(self) -> None:
        """The agent's process starts."""
        self._agent_started_at = self._context.scheduler.clock()
        self.wake()

    def power_off(self) -> None:
        """The VM has stopped: agent and program end at once."""
        self._boots += 1
        self._is_up = False
        self.off_since_s = self._context.now
        if self.program:
            self._training.kill(self.program)
            self.program = None

    def crash(self) -> None:
        """The next agent process kills the program that it finds running, and continues from the
        disk.
        """
        if self._is_up:
            self._context.log("agent crash", self._vm.observed.name)
            self.power_off()
            self.boot()

    def shut_down(self) -> None:
        """The operating system is shutting down."""
        if self._is_up:
            self._stopping = True
            self._reconcile()

    def receive_notice(self, cause: str) -> None:
        """The metadata server announces the end of the VM."""
        self._plan_within(NOTICE_READ_S, lambda: self._on_fault(cause))

    def receive_maintenance_window(self, within_s: float) -> None:
        """Handle the announcement that the VM ends for maintenance in at most `within_s` seconds.

        The program may save a checkpoint and exit. The maintenance is reported when it has exited,
        or before the VM ends. From now on the VM, not the program, is the cause of an exit
        (`trainmaster.agent.shutdown.vm_shutdown_notice`).
        """
        self._end_is_announced = True
        if self.program and self._context.chance(CHECKPOINTS_ON_NOTICE):
            program = self.program
            self._plan_within(CHECKPOINT_S, lambda: self._training.checkpoint_and_exit(program))
        else:
            self._plan_within((0.0, within_s), lambda: self._on_fault("maintenance"))

    def wake(self) -> None:
        """The directive in the VM's metadata has changed."""
        if self._is_up:
            self._plan_within(DIRECTIVE_S, lambda: self._on_directive(self._vm.observed.directive))

    def _plan_within(self, span_s: tuple[float, float], action: Callable[[], None]) -> None:
        """Plan the action for a random moment between the two times, in seconds from now. It is
        dropped if the VM is powered off or boots before.
        """
        boots = self._boots

        def run_unless_rebooted() -> None:
            if boots == self._boots:
                action()

        self._context.scheduler.after(self._context.between(*span_s), run_unless_rebooted)

    # Inputs, as in the real agent.

    def _on_directive(self, directive: Directive | None) -> None:
        if directive is None:
            return
        if directive.tenure != self._tenure:
            self._leave(directive)
            return
        disk = self._disk
        key = _key(directive)
        if disk.desired is not None and _key(disk.desired) > key:
            return
        if directive != disk.desired:
            self._may_start_at = self._context.now + directive.pause_s
            disk.desired = directive
            self._events.drop_before(key)
            is_newer = disk.started is not None and key > disk.started
            must_end = is_newer or directive.action is not DirectiveAction.RUN
            if self.program and must_end:
                disk.closed, disk.exit = True, None
        self._settle_past(directive)
        while self._unsent_causes:
            self._send_fault(key, self._unsent_causes.pop(0))
        self._reconcile()

    def _leave(self, directive: Directive) -> None:
        """End what runs, and leave the VM to the agent of the job that has taken it."""
        if directive.tenure < self._tenure or self._is_leaving:
            return
        self._is_leaving = True
        self._plan_within(CLEAN_S, self._leave_now)

    def _leave_now(self) -> None:
        self.power_off()
        self._leave_vm(self._vm)

    def _on_fault(self, cause: str) -> None:
        if cause in self._known_causes:
            return
        self._known_causes.append(cause)
        if self._disk.desired is None:
            self._unsent_causes.append(cause)
        else:
            self._send_fault(_key(self._disk.desired), cause)

    def _on_setup_ended(self) -> None:
        self._setting_up = False
        disk = self._disk
        desired = disk.desired
        if self._stopping:
            return
        if self._context.chance(self._context.faults.setup_fail):
            if desired is None or desired.action is DirectiveAction.STOP:
                return
            error = {"type": "DownloadError", "message": "503", "frame": ""}
            disk.started = _key(desired)
            disk.closed = False
            self._report_exit(_key(desired), {"cause": "setup", "error": error, "tail": "503"})
        else:
            disk.setup_done = True
        self._reconcile()

    def _on_program_ended(self, key: Key, exit_: Exit) -> None:
        self.program = self._running = None
        self._is_stopping_program = False
        if not self._unwanted and not self._disk.closed:
            is_vm_ending = self._stopping or self._end_is_announced
            self._report_exit(key, {**exit_, "cause": "vm_stopping"} if is_vm_ending else exit_)
        if self._end_is_announced:
            self._on_fault("maintenance")
        self._reconcile()

    # Consequences, as in the real agent.

    def _reconcile(self) -> None:
        """Do what leads to the directive: stop the program, set up, report, or start."""
        disk = self._disk
        desired = disk.desired
        must_run = desired is not None and desired.action is DirectiveAction.RUN
        key = _key(desired) if desired else None
        if self.program is not None:
            self._unwanted |= not must_run or key != self._running
            if (self._unwanted or self._stopping) and not self._is_stopping_program:
                self._is_stopping_program = True
                program = self.program
                self._plan_within(STOP_S, lambda: self._stop_program(program))
        elif key is None or not self._has_next_program(key):
            return
        elif disk.setup_done and must_run:
            self._start_when_allowed(key)
        elif disk.setup_done:
            self._report_ready(key, FIRST_READY_REPEAT_S)
        elif not self._setting_up:
            self._setting_up = True
            self._plan_within(SETUP_S, self._on_setup_ended)

    def _has_next_program(self, key: Key) -> bool:
        """Return whether the directive, whose key this is, asks for a program that has not run."""
        disk = self._disk
        is_stopped = disk.desired is None or disk.desired.action is DirectiveAction.STOP
        has_run = disk.started is not None and key <= disk.started
        return not self._stopping and not is_stopped and not has_run

    def _report_ready(self, key: Key, repeat_s: float) -> None:
        """Report under `hold` that nothing older runs here, again and again while the round is
        held.
        """
        if self._repeats_ready_for != key:
            self._repeats_ready_for = self._disk.ready = key
            self._send_ready(key)
            self._plan_within((repeat_s, repeat_s), lambda: self._repeat_ready(key, repeat_s))

    def _repeat_ready(self, key: Key, waited_s: float) -> None:
        desired = self._disk.desired
        is_still_held = (
            desired is not None and desired.action is DirectiveAction.HOLD and _key(desired) == key
        )
        if is_still_held and not self._stopping:
            self._send_ready(key)
            repeat_s = min(2 * waited_s, READY_REPEAT_S_MAX)
            self._plan_within((repeat_s, repeat_s), lambda: self._repeat_ready(key, repeat_s))

    def _send_ready(self, key: Key) -> None:
        disk = self._disk
        details: dict[str, object] = {"agent_started_at": self._agent_started_at.isoformat()}
        if disk.started is not None and not disk.closed and disk.exit is not None:
            attempt, incarnation = disk.started
            details["ended"] = {"attempt": attempt, "incarnation": incarnation, **disk.exit}
        self._send(self._events, topics.VM_READY, key, details, lambda: None)

    def _start_when_allowed(self, key: Key) -> None:
        wait_s = self._may_start_at - self._context.now
        if wait_s > 0:
            self._plan_within((wait_s, wait_s), self._reconcile)
        else:
            self._start(key)

    def _start(self, key: Key) -> None:
        if self._disk.ready != key:
            self._send_ready(key)
        self._disk.started = key
        self._disk.closed = False
        self._disk.exit = None
        self._unwanted = False
        boots = self._boots
        observed = self._vm.observed
        self._running = key
        self._started_at = self._context.now
        self._context.log("start", observed.replica_id, *key)
        vm_incarnation = (observed.instance_id, *key)
        self.program = self._training.start(
            observed.replica_id,
            self._host or 0,
            vm_incarnation,
            lambda exit_: self._on_exit(boots, key, exit_),
        )

    def _on_exit(self, boots: int, key: Key, exit_: Exit) -> None:
        self._context.log(
            "exit",
            self._vm.observed.replica_id,
            *key,
            exit_.get("exit_status"),
            exit_.get("signal"),
        )
        if boots == self._boots:
            self._on_program_ended(key, {**exit_, "ran_s": self._context.now - self._started_at})

    def _stop_program(self, program: Program) -> None:
        if self.program is program and self._running and program.is_alive:
            self._training.kill(program)
            self._on_program_ended(
                self._running, {"cause": "process", "signal": int(signal.SIGTERM)}
            )

    def _settle_past(self, directive: Directive) -> None:
        """Once after each boot: report the incarnation that was running before it, unless that was
        done.
        """
        if self._has_settled_past:
            return
        self._has_settled_past = True
        disk = self._disk
        if disk.started is None or disk.closed:
            return
        if _key(directive) > disk.started:
            # The next vm-ready reports this end.
            disk.exit = disk.exit or {
                "at": self._context.scheduler.clock().isoformat(),
                "cause": "vm_restarted",
            }
        elif disk.exit is not None:
            self._send_exit(disk.started, disk.exit)
        elif directive.action is DirectiveAction.RUN:
            self._report_exit(disk.started, {"cause": "vm_restarted"})
        else:
            disk.closed = True

    def _report_exit(self, key: Key, exit_: Exit) -> None:
        self._disk.exit = {"at": self._context.scheduler.clock().isoformat(), **exit_}
        self._send_exit(key, self._disk.exit)

    def _send_exit(self, key: Key, exit_: Exit) -> None:
        self._send(self._events, topics.REPLICA_EXIT, key, exit_, lambda: None)

    def _send_fault(self, key: Key, cause: str) -> None:
        announced = self._disk.announced
        self._send(
            self._fault_events,
            topics.MAINTENANCE,
            key,
            {"cause": cause},
            lambda: announced.append(cause),
        )

    def _send(
        self,
        sender: EventSender,
        topic: str,
        key: Key,
        details: dict[str, object],
        on_accepted: Callable[[], None],
    ) -> None:
        body = event_body(
            self._vm.observed,
            self._job_id,
            self._host,
            key,
            self._context.scheduler.clock(),
            details,
        )
        sender.put(Event(topic, key, body, on_accepted))


def _key(directive: Directive) -> Key:
    return directive.attempt, directive.incarnation
