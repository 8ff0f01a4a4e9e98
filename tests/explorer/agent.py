"""The agent of one VM, or of one host of a TPU slice, as docs/interfaces.md promises it.

Under `hold` of (attempt, incarnation) it ends what runs, sets up if necessary, and reports
vm-ready: nothing older runs here, and this is how the last program ended. Under `run` it starts the
program.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from tests.explorer.programs import EXITS, IGNORES, SAVED
from trainmaster.core.model.members import channel_members
from trainmaster.core.model.vm import Directive, DirectiveAction, VmStatus
from trainmaster.messaging import topics

if TYPE_CHECKING:
    from tests.explorer.cloud import ExploredVm
    from tests.explorer.programs import Program

Key = tuple[int, int]
"""Attempt and incarnation. For members of a synchronous job, the incarnation is the round."""
Facts = dict[str, Any]
"""The fields of replica-exit that say how a program ended."""

BOOT_S: Final = (3.0, 15.0)
SETUP_S: Final = (1.0, 8.0)
STOP_S: Final = (0.1, 3.0)
SLOW_STOP_S: Final = (3.0, 25.0)
STUCK_S: Final = 85.0
"""A minute after SIGKILL, the agent of a program that does not end stops its heartbeat."""
RUNS: Final = (DirectiveAction.RUN, DirectiveAction.SAVE)
GIVES_UP_S: Final = 25.0
FINISH_S: Final = 600.0
CATCH_AGAIN_S: Final = 30.0
ASK_AGAIN_S: Final = 600.0
LATE_S: Final = 60.0
SAVE_S: Final = (20.0, 25.0)
UNFIT: Final = {"type": "UnfitMachine", "message": "7 of 8 GPUs answer", "frame": ""}
DATAGRAMS_LOST: Final = 0.2
"""Share of the peers that no datagram reaches."""
REPEAT_READY_S: Final = 20.0
REPEAT_S: Final = 600.0


class Agent:
    def __init__(self, vm: ExploredVm, host: int | None) -> None:
        self.vm = vm
        self.host = host
        self.world = vm.world
        profile = vm.world.profile
        self.skew_s = self.world.between((-profile.agent_skew_s, profile.agent_skew_s))
        if self.world.chance(profile.bad_clock):
            self.skew_s = self.world.rng.choice((-1, 1)) * self.world.between((30.0, 120.0))
        # what is on the disk, and survives crashes and reboots
        self.desired: Directive | None = None
        self.started: Key | None = None
        self.ended: Facts | None = None
        """How the program of `started` ended. None: it runs, or a directive ended it."""
        self.is_open = False
        """Whether the end of that program is to be reported: no directive ended it."""
        self.reported_ready: Key | None = None
        self.is_set_up = self.is_unfit = False
        self.boots = 0
        self.up_since_s = self.off_since_s = self.world.now_s
        self._reset()

    def _reset(self) -> None:
        self.is_up = self.is_settled = False
        self.program: Program | None = None
        self.is_stopping = self.is_setting_up = self.is_vm_ending = self.is_announced = False
        self.start_after_s = 0.0
        self.silent_since_s: float | None = None
        self.told: set[str] = set()
        self.given_up: set[str] = set()
        self.asked: Key | None = None
        """The round in which all members were asked to save."""
        self.save_number = 0
        """The last request of that round."""
        self.asked_s = -math.inf
        """When that was."""
        self.gives_up_s = self.round_ended_s = math.inf

    def _later(
        self, span_s: tuple[float, float], action: Callable[..., object], *args: object
    ) -> None:
        boots = self.boots
        self.world.within(
            span_s, lambda: action(*args) if boots == self.boots and self.is_up else None
        )

    # What happens to the machine.

    def boot(self) -> None:
        if self.vm.is_gone or self.vm.is_hung or self.vm.status is not VmStatus.RUNNING:
            return
        self.boots += 1
        self._reset()
        self.is_up = True
        self.up_since_s = self.world.now_s
        self._later(BOOT_S, self._on_directive)
        rate = self.world.profile.agent_crash_per_hour
        if rate and self.world.has_faults:
            crash_s = self.world.rng.expovariate(rate / 3600)
            self._later((crash_s, crash_s), self._crash)

    def _crash(self) -> None:
        if self.world.has_faults:
            self.world.log("agent crash", self.vm)
            self.vm.job.note_fault(self.vm, "reboot")
            self.power_off("reboot")
            self.boot()

    def power_off(self, cause: str) -> None:
        self.boots += 1
        if self.is_up:
            self.off_since_s = self.world.now_s
        self.is_up = False
        if self.program:
            self.vm.job.programs.end(self.program, cause)
            self.program = None

    @property
    def last_beat_s(self) -> float:
        if not self.is_up:
            return self.off_since_s
        return self.silent_since_s if self.silent_since_s is not None else self.world.now_s

    def notice(self, cause: str) -> None:
        """The metadata server announces the end of the VM. Some programs save a checkpoint and exit
        0.
        """
        if not self.is_up or self.desired is None or cause in self.told:
            return
        self.told.add(cause)
        self.is_announced = True
        if self.saves_together and self.program:
            self._save_together(self.program.key, cause)
            return
        self._send(topics.MAINTENANCE, _key(self.desired), {"cause": cause})
        if self.program and self.world.rng.random() < 0.4:
            self._later(
                (0.5, 8.0), self.vm.job.programs.exit, self.program, {"exit_status": 0}, "vm"
            )

    def shut_down(self) -> None:
        if self.is_up:
            self.is_vm_ending = True
            if self.program:
                span_s = SAVE_S if self.saves_together and self.is_announced else STOP_S
                self._later(span_s, self.vm.job.programs.exit, self.program, {"signal": 15}, "vm")

    # All members save together.

    @property
    def saves_together(self) -> bool:
        job = self.vm.job
        return job.plan.save_on_notice == "gang" and job.is_member(self.vm.replica_id)

    def _save_together(self, key: Key, cause: str) -> None:
        """Tell the peers, some of which the datagrams do not reach, and report them.

        Give the VM up in time.
        """
        number = self.save_number if self.asked == key else 0
        is_old = self.world.now_s - self.asked_s > ASK_AGAIN_S
        self._ask_all(key, number + 1 if is_old or not number else number, GIVES_UP_S)
        self._later((GIVES_UP_S, GIVES_UP_S), self._give_up, cause)

    def _ask_if_caught(self, key: Key, number: int, until_s: float) -> None:
        """Ask all members, because more can join, or the job ends, as soon as the own program can
        save.
        """
        is_known = self.asked == key and self.save_number >= number
        is_current = self.desired is not None and _key(self.desired) == key
        if is_known or not is_current or number != self.desired_save:
            return
        if self.program and self.program.key == key and self._catches(self.program):
            self._ask_all(key, number, until_s - self.world.now_s)
        else:
            self._later((CATCH_AGAIN_S, CATCH_AGAIN_S), self._ask_if_caught, key, number, until_s)

    @property
    def desired_save(self) -> int:
        return self.desired.save_number if self.desired else 0

    def announce_early(self, ahead_s: float) -> None:
        """Maintenance is announced so long ahead. Nothing happens to the VM before."""
        if self.program:
            self._ask_all(self.program.key, 1, ahead_s)

    def _catches(self, program: Program) -> bool:
        """Whether the program catches the signal now."""
        reaction = self.vm.job.reaction_to_save
        return reaction != IGNORES if reaction else self.world.rng.random() < 0.7

    def _ask_all(self, key: Key, number: int, after_s: float) -> None:
        world = self.world
        members = channel_members(self.vm.job.plan)
        silent = []
        gives_up_s = world.now_s + after_s
        programs = [
            program for program in self.vm.job.programs.all if program.replica_id in members
        ]
        running = [program for program in programs if program.is_alive and program.key == key]
        for program in running:
            if program.agent is self or world.rng.random() > DATAGRAMS_LOST:
                program.agent._later((0.5, 0.6), program.agent.ask, key, number, gives_up_s)
            else:
                silent.append(members.index(program.replica_id))
        at = (world.clock() + timedelta(seconds=after_s)).isoformat()
        facts = {
            "cause": "notice",
            "gives_up_at": at,
            "save_number": number,
            "unanswered": silent,
        }
        self._later((0.6, 3.0), self._send, topics.MAINTENANCE, key, facts)

    def ask(self, key: Key, number: int, gives_up_s: float) -> None:
        """Ask the program to save, once for each request.

        Some save and exit, some save and go on, and some know no signal.
        """
        is_known = self.asked == key and self.save_number >= number
        if self.vm.job.reaction_to_save == IGNORES and not self.saves_together:
            return
        if self.program and self.program.key == key and not is_known:
            self.asked = key
            self.save_number = number
            self.asked_s = self.world.now_s
            self.gives_up_s = gives_up_s
            self.round_ended_s = math.inf
            self.program.was_asked = True
            self.world.log("asked", self.program)
            reaction = self.vm.job.reaction_to_save
            if reaction != IGNORES:
                self.program.saved_s.append(self.world.now_s)
            if reaction == EXITS or (reaction is None and self.world.rng.random() < 0.6):
                self.program.saves_until_s = self.world.now_s + self.world.between((0.5, 20.0))
                saves_s = self.program.saves_until_s - self.world.now_s
                self._later(
                    (saves_s, saves_s),
                    self.vm.job.programs.exit,
                    self.program,
                    {"exit_status": 0},
                    SAVED,
                )

    def _give_up(self, cause: str) -> None:
        if cause not in self.given_up and self.desired:
            self.given_up.add(cause)
            self._send(topics.MAINTENANCE, _key(self.desired), {"cause": cause})

    def _patience_s(self, directive: Directive) -> float:
        """How long the program may go on with its save."""
        if (
            not self.program
            or self.program.key != self.asked
            or directive.action is DirectiveAction.STOP
        ):
            return 0.0
        self.round_ended_s = min(self.round_ended_s, self.world.now_s)
        return min(self.round_ended_s + FINISH_S, self.gives_up_s) - self.world.now_s

    # What the directive orders.

    def wake(self) -> None:
        self._later((0.02, 0.5), self._on_directive)

    def _on_directive(self) -> None:
        directive = self.vm.directive
        if self.desired is None or directive.order > self.desired.order:
            if self.desired is None or _key(directive) != _key(self.desired):
                self.start_after_s = self.world.now_s + directive.pause_s
            self.desired = directive
            if self.program and (
                directive.action not in RUNS or _key(directive) != self.program.key
            ):
                self.is_open = False
            if directive.action is DirectiveAction.SAVE:
                until_s = self.world.now_s + directive.until - self.world.clock().timestamp()
                ask = self._ask_if_caught if directive.asks_peers else self.ask
                ask(_key(directive), directive.save_number, until_s)
        if not self.is_settled:
            self.is_settled = True
            self._settle(directive)
        self._reconcile()

    def _settle(self, directive: Directive) -> None:
        """Once after each boot: the program that ran before the boot was interrupted by it."""
        if self.started and self.is_open and self.ended is None:
            self.ended = {"at": self.world.clock(self.skew_s).isoformat(), "cause": "vm_restarted"}
        if (
            self.started == _key(directive)
            and self.is_open
            and directive.action in RUNS
            and self.ended
        ):
            self._report_exit(self.started, self.ended)
        if self.reported_ready == _key(directive) and directive.action is DirectiveAction.HOLD:
            self._report_ready()

    def _reconcile(self) -> None:
        directive = self.desired
        if directive is None or self.is_vm_ending:
            return
        key = _key(directive)
        if self.program:
            if (key != self.program.key or directive.action not in RUNS) and not self.is_stopping:
                left_s = self._patience_s(directive)
                self._later((left_s, left_s), self._reconcile) if left_s > 0 else self._stop()
        elif (
            (self.given_up and self.saves_together)
            or directive.action is DirectiveAction.STOP
            or (self.started is not None and key <= self.started)
        ):
            return
        elif not self.is_set_up:
            self._set_up()
        elif directive.action is DirectiveAction.HOLD:
            if self.reported_ready != key:
                self.reported_ready = key
                self._report_ready()
        elif self.start_after_s > self.world.now_s:
            wait_s = self.start_after_s - self.world.now_s
            self._later((wait_s, wait_s), self._reconcile)
        else:
            self._start(key)

    def _stop(self) -> None:
        assert self.program
        self.is_stopping = True
        is_in_time = self.world.now_s < min(self.gives_up_s, self.round_ended_s + FINISH_S)
        is_ordered = self.desired is not None and self.desired.action is not DirectiveAction.STOP
        if self.program.saves_until_s > self.world.now_s and is_in_time and is_ordered:
            self.world.violate("killed while it saves", self.program)
        profile = self.world.profile
        if self.world.chance(profile.unkillable):
            self.world.log("unkillable", self.vm)
            self._later((STUCK_S, STUCK_S), self._fall_silent, self.program)
            return
        span_s = SLOW_STOP_S if self.world.chance(profile.slow_stop) else STOP_S
        self._later(span_s, self.vm.job.programs.exit, self.program, {"signal": 15}, "stopped")

    def _fall_silent(self, program: Program) -> None:
        if not program.is_alive:
            return  # it ended by itself
        self.silent_since_s = self.world.now_s
        self.vm.fail("unkillable")

    def _set_up(self) -> None:
        if not self.is_setting_up:
            self.is_setting_up = True
            profile = self.world.profile
            span_s = profile.slow_setup_s if self.world.chance(profile.slow_setup) else SETUP_S
            self._later(span_s, self._end_set_up)

    def _end_set_up(self) -> None:
        self.is_setting_up = False
        directive = self.desired
        if directive is None or self.is_vm_ending or directive.action is DirectiveAction.STOP:
            return
        self.is_unfit |= self.world.chance(self.world.profile.unfit)
        if self.is_unfit:
            self.started = _key(directive)
            self.is_open = True
            self.vm.job.note_fault(self.vm, "unfit")
            self._close_with({"cause": "setup", "error": UNFIT, "tail": UNFIT["message"]})
            return
        if self.world.chance(self.world.profile.setup_fail):
            self.started = _key(directive)
            self.is_open = True
            error = {"type": "DownloadError", "message": "503", "frame": ""}
            self.vm.job.note_fault(self.vm, "setup")
            self._close_with({"cause": "setup", "error": error, "tail": "503"})
            return
        self.is_set_up = True
        self._reconcile()

    def _start(self, key: Key) -> None:
        if self.reported_ready != key:
            self.reported_ready = key
            self._report_ready()
        self.started = key
        self.ended = None
        self.is_open = True
        self.is_stopping = False
        self.program = self.vm.job.programs.start(self, key)

    # What is reported.

    def on_exit(self, program: Program, facts: Facts) -> None:
        """The agent sees that the program ended.

        If a directive came first, its end is no evidence.
        """
        if self.program is not program:
            return
        self.program, self.is_stopping = None, False
        if not self.is_open:
            program.is_hidden = True
        else:
            if self.is_vm_ending or self.is_announced:
                facts = {**facts, "cause": "vm_stopping"}
            elif program.was_asked and self.world.now_s < self.gives_up_s + LATE_S:
                facts = {**facts, "cause": "saved"}
            self._close_with({**facts, "ran_s": self.world.now_s - program.started_s})
        if self.saves_together:
            for cause in sorted(self.told):
                self._give_up(cause)
        self._reconcile()

    def _close_with(self, facts: Facts) -> None:
        assert self.started
        self.ended = {"at": self.world.clock(self.skew_s).isoformat(), **facts}
        self._report_exit(self.started, self.ended)

    def _report_exit(self, key: Key, facts: Facts) -> None:
        if self.desired and _key(self.desired) == key and self.ended is facts:
            self._send(topics.REPLICA_EXIT, key, facts)
            self._later((REPEAT_S, REPEAT_S), self._report_exit, key, facts)

    def _report_ready(self, repeat_s: float = REPEAT_READY_S) -> None:
        """Report that nothing older runs here.

        Repeat it while the incarnation is held, more and more rarely.
        """
        directive = self.desired
        assert directive
        key = _key(directive)
        facts: Facts = {"agent_started_at": self.world.clock(self.skew_s).isoformat()}
        if self.ended and self.started and self.started < key and self.is_open:
            facts["ended"] = {
                "attempt": self.started[0],
                "incarnation": self.started[1],
                **self.ended,
            }
        self._send(topics.VM_READY, key, facts)

        def again() -> None:
            if self.desired == directive and self.reported_ready == key:
                self._report_ready(min(2 * repeat_s, REPEAT_S))

        self._later((repeat_s, repeat_s), again)

    def _send(self, topic: str, key: Key, facts: Facts) -> None:
        vm = self.vm
        body = {
            "version": 1,
            "job_id": vm.job.job_id,
            "attempt": key[0],
            "task_type": vm.replica_id.task_type,
            "task_index": vm.replica_id.index,
            "incarnation": key[1],
            "vm_generation": vm.generation,
            "vm": {"name": vm.name, "zone": vm.zone, "instance_id": vm.instance_id},
            "at": self.world.clock(self.skew_s).isoformat(),
            **({} if self.host is None else {"host": self.host}),
            **facts,
        }
        vm.cloud.publish(topic, json.dumps(body).encode(), {})


def _key(directive: Directive) -> Key:
    return directive.attempt, directive.incarnation
