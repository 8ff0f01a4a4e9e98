"""The agent's protocol, step by step as in `shared.agent.control.agent`: same state on disk, same lanes, same order.

A model and not the agent itself, because that is threads, processes and HTTP; `tests/integration/agent` holds the real one to the
same promises (docs/interfaces.md sections 2 and 3).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from shared.core.reconcile.plan import Directive, DirectiveAction
from shared.messaging import topics
from simulator.world.bus import SimBus
from simulator.world.context import Context
from simulator.world.event_sender import Event, Key, Lane
from simulator.world.fleet import SimVm
from simulator.world.programs import Ending, Program, Training

BOOT_S: Final = (4.0, 15.0)
SETUP_S: Final = (1.0, 6.0)
HEAR_S: Final = (0.02, 0.3)
END_S: Final = (0.1, 3.0)
PARTING_S: Final = HEAR_S[1] + END_S[1]
"""Of a slice: until no host runs an older incarnation than the one that all of them hear of (`shared.agent.control.slice_hosts`)."""
SAVE_S: Final = (0.5, 10.0)
SAVES_AND_ENDS: Final = 0.5
FIRST: Final[Key] = (1, 1)


@dataclass(slots=True)
class _Disk:
    """What survives a crash of the agent and a reboot; a new VM starts with an empty one."""

    started: Key | None = None
    closed: bool = True
    exit: Ending | None = None
    desired: Directive | None = None
    setup_done: bool = False
    announced: list[str] = field(default_factory=list)


class SimAgent:
    """One VM's; or one host's of a slice, each of which has this very protocol, its number, and its own disk."""

    def __init__(self, vm: SimVm, host: int | None, training: Training, bus: SimBus, context: Context) -> None:
        self._vm, self._host, self._training, self._bus, self._context = vm, host, training, bus, context
        self._disk = _Disk()
        self._life = 0  # counts the agent's own incarnations: what an earlier one planned is void
        self._is_up = False
        self._reset()

    def _reset(self) -> None:
        self.program: Program | None = None
        self._running: Key | None = None
        self._unwanted = self._setting_up = self._stopping = self._past_settled = self._is_announced = False
        self._lane, self._fault_lane = (Lane(self._bus, self._context, self._soon) for _ in range(2))
        self._seen_faults = list(self._disk.announced)
        self._waiting_faults: list[str] = []
        self._is_ending = False
        self._heard: Key = FIRST
        self._parted_at = 0.0

    @property
    def running(self) -> Key | None:
        return self._running if self.program and self.program.is_alive else None

    def boot(self) -> None:
        self._life += 1
        self._is_up = True
        self._reset()
        self._soon(BOOT_S, self.hear_soon)

    def die(self) -> None:
        """The VM stops under it."""
        self._life += 1
        self._is_up = False
        if self.program:
            self._training.kill(self.program)
            self.program = None

    def crash(self) -> None:
        """The agent alone: the next one kills what it finds running, and goes on from the disk."""
        if self._is_up:
            self._context.say("agent crash", self._vm.seen.name)
            self.die()
            self.boot()

    def shut_down(self) -> None:
        if self._is_up:
            self._stopping = True
            self._reconcile()

    def hear_fault(self, cause: str) -> None:
        self._soon((0.1, 2.0), lambda: self._on_fault(cause))

    def hear_of_window(self, within_s: float) -> None:
        """The end is announced: the program is asked to save. If it ends, or when a replacement must begin, it is told;
        what it ends with from now on is not its own doing (`shared.agent.shutdown.vm_shutdown_notice`)."""
        self._is_announced = True
        if self.program and self._context.chance(SAVES_AND_ENDS):
            program = self.program
            self._soon(SAVE_S, lambda: self._training.save_and_end(program))
        else:
            self._soon((0.0, within_s), lambda: self._on_fault("maintenance"))

    def hear_soon(self) -> None:
        if self._is_up:
            self._soon(HEAR_S, lambda: self._on_directive(self._vm.seen.directive))

    def _soon(self, within: tuple[float, float], action: Callable[[], None]) -> None:
        incarnation_key = self._life

        def unless_dead() -> None:
            if incarnation_key == self._life:
                action()

        self._context.scheduler.after(self._context.between(*within), unless_dead)

    # As in the agent: what arrives.

    def _on_directive(self, directive: Directive | None) -> None:
        if directive is None:
            return
        disk, key = self._disk, (directive.attempt, directive.incarnation)
        if disk.desired is not None and _key(disk.desired) > key:
            return
        if self._host is not None and key != self._heard:
            self._heard, self._parted_at = key, self._context.now + PARTING_S
        if directive != disk.desired:
            disk.desired = directive
            self._lane.drop_before(key)
            is_newer = disk.started is None or key > disk.started
            if is_newer or (self.program and directive.action is not DirectiveAction.RUN):
                disk.closed, disk.exit = True, None
        self._settle_past(directive)
        while self._waiting_faults:
            self._tell_fault(key, self._waiting_faults.pop(0))
        self._reconcile()

    def _on_fault(self, cause: str) -> None:
        if cause in self._seen_faults:
            return
        self._seen_faults.append(cause)
        if self._disk.desired is None:
            self._waiting_faults.append(cause)
        else:
            self._tell_fault(_key(self._disk.desired), cause)

    def _on_setup_ended(self) -> None:
        self._setting_up = False
        disk, desired = self._disk, self._disk.desired
        if self._stopping:
            return
        if self._context.chance(self._context.faults.setup_fail):
            if desired is None or desired.action is not DirectiveAction.RUN:
                return
            error = {"type": "DownloadError", "message": "503", "frame": ""}
            disk.started, disk.closed = _key(desired), False
            self._tell_exit(_key(desired), {"cause": "setup", "error": error, "tail": "503"})
        else:
            disk.setup_done = True
        self._reconcile()

    def _on_program_ended(self, key: Key, how: Ending) -> None:
        self.program = self._running = None
        self._is_ending = False
        if not self._unwanted:
            self._tell_exit(key, {**how, "cause": "vm_stopping"} if self._stopping or self._is_announced else how)
        if self._is_announced:
            self._on_fault("maintenance")
        self._reconcile()

    # As in the agent: what follows.

    def _reconcile(self) -> None:
        disk, desired = self._disk, self._disk.desired
        is_run = desired is not None and desired.action is DirectiveAction.RUN
        key = _key(desired) if desired else None
        if self.program is not None:
            self._unwanted |= not is_run or key != self._running
            if (self._unwanted or self._stopping) and not self._is_ending:
                self._is_ending = True
                self._soon(END_S, self._end_program)
        elif self._stopping or not is_run or key is None or (disk.started is not None and key <= disk.started):
            return
        elif disk.setup_done:
            self._begin(key)
        elif not self._setting_up:
            self._setting_up = True
            self._soon(SETUP_S, self._on_setup_ended)

    def _begin(self, key: Key) -> None:
        left_s = self._parted_at - self._context.now
        if left_s > 0:
            self._soon((left_s, left_s), self._reconcile)
        else:
            self._start(key)

    def _start(self, key: Key) -> None:
        self._disk.started, self._disk.closed, self._disk.exit = key, False, None
        self._unwanted = False
        self._put(self._lane, topics.VM_READY, key, {}, lambda: None)
        incarnation_key, replica_id, vm = self._life, self._vm.seen.replica_id, self._vm.seen.instance_id
        self._running = key
        self._context.say("start", replica_id, *key)
        self.program = self._training.start(
            replica_id, self._host or 0, (vm, *key), lambda how: self._ended(incarnation_key, key, how)
        )

    def _ended(self, incarnation_key: int, key: Key, how: Ending) -> None:
        self._context.say("exit", self._vm.seen.replica_id, *key, how.get("exit_status"), how.get("signal"))
        if incarnation_key == self._life:
            self._on_program_ended(key, how)

    def _end_program(self) -> None:
        if self.program and self._running and self.program.is_alive:
            self._training.kill(self.program)
            self._on_program_ended(self._running, {"cause": "process", "signal": 15})

    def _settle_past(self, directive: Directive) -> None:
        if self._past_settled:
            return
        self._past_settled = True
        disk = self._disk
        if disk.started is None or disk.closed or _key(directive) > disk.started:
            return
        if disk.exit is not None:
            self._put_exit(disk.started, disk.exit)
        elif directive.action is DirectiveAction.RUN:
            self._tell_exit(disk.started, {"cause": "vm_restarted"})
        else:
            disk.closed = True

    def _tell_exit(self, key: Key, how: Ending) -> None:
        self._disk.exit = how
        self._put_exit(key, how)

    def _put_exit(self, key: Key, how: Ending) -> None:
        self._put(self._lane, topics.REPLICA_EXIT, key, how, lambda: self._on_exit_accepted(key))

    def _on_exit_accepted(self, key: Key) -> None:
        if key == self._disk.started:
            self._disk.closed, self._disk.exit = True, None

    def _tell_fault(self, key: Key, cause: str) -> None:
        self._put(
            self._fault_lane,
            topics.MAINTENANCE,
            key,
            {"cause": cause},
            lambda: self._disk.announced.append(cause),
        )

    def _put(self, lane: Lane, topic: str, key: Key, fact: dict[str, object], accepted: Callable[[], None]) -> None:
        vm = self._vm.seen
        body: dict[str, object] = {
            "version": 1,
            "job_id": self._vm.job_id,
            "attempt": key[0],
            "task_type": vm.replica_id.task_type.value,
            "task_index": vm.replica_id.index,
            "incarnation": key[1],
            "vm_generation": vm.vm_generation,
            "vm": {"name": vm.name, "zone": vm.zone, "instance_id": vm.instance_id},
            "at": self._context.scheduler.clock().isoformat(),
        }
        if self._host is not None:
            body["host"] = self._host
        lane.put(Event(topic, key, {**body, **fact}, accepted))


def _key(directive: Directive) -> Key:
    return directive.attempt, directive.incarnation
