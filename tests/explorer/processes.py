"""The process of a training program as its agent sees it: what it can do to it, and how it ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from signal import Signals
from typing import TYPE_CHECKING, Any, Final

from greenlet import getcurrent, greenlet

from tests.explorer.causes import REBOOT, STALLED, STOPPED, VM
from tests.explorer.threads import BOOTED_S, Threads
from trainmaster.agent.model.results import ProgramExit
from trainmaster.agent.model.vm_config import IncarnationKey
from trainmaster.agent.program.process_table import ProcessUse

if TYPE_CHECKING:
    from tests.explorer.agent_host import AgentHost
    from tests.explorer.jobs import ExploredJob
    from tests.explorer.programs import Program

Facts = dict[str, Any]
"""Fields of replica-exit that say how a program ended."""

STOP_S: Final = (0.1, 3.0)
SLOW_STOP_S: Final = (3.0, 25.0)
STUCK_S: Final = 60.0
"""After SIGKILL, the agent of a process that does not end stops its heartbeat."""
STACK_GRACE_S: Final = 2.0
LOOKS_AGAIN_S: Final = 0.5


class Process:
    """Stands for `trainmaster.agent.program.program.Program`."""

    def __init__(self, host: AgentHost, program: Program, threads: Threads) -> None:
        self._host = host
        self._job = program.job
        self._world = host.world
        self._threads = threads
        self.program = program
        self.is_alive = True
        self.is_ending = False
        self.is_unkillable = False
        self.has_stalled = False
        self.silent_since_s: float | None = None
        """Since when it prints nothing, because it hangs."""
        self.program_exit = ProgramExit()
        self._waiting: list[greenlet] = []
        """Threads of the agent that wait until it ends, or prints nothing."""

    # What the agent's core asks.

    @property
    def printed_at(self) -> float:
        """When it last printed: now, unless it hangs."""
        at_s = self._world.now_s if self.silent_since_s is None else self.silent_since_s
        return BOOTED_S + at_s

    def stacks(self) -> str:
        return ""

    def error_before_stacks(self) -> None:
        """Return the error that it printed last: a program that hangs has printed none."""

    def has_left_peers(self) -> bool:
        return False

    def notify(self, number: Signals) -> None:
        del number
        self._job.programs.save_alone(self.program)

    def end(self, grace_s: float) -> None:
        """SIGTERM, and SIGKILL after the grace."""
        if not self.is_alive or self.is_ending:
            return
        self.is_ending = True
        host = self._host
        world = self._world
        profile = world.profile
        cause = STOPPED
        if self.has_stalled:
            cause = STALLED
        elif host.is_vm_ending:
            cause = VM
        elif not self.is_withdrawn:
            world.violate("ended for no reason", self.program)
        if cause == STOPPED:
            *_, action = host.delivered or ("",)
            self._job.examiner.on_stop(self.program, "stop" if self._is_of_last_job else action)
        self.is_unkillable = world.chance(profile.unkillable)
        if self.is_unkillable:
            world.log("unkillable", host.vm)
            world.after(grace_s + STUCK_S, self._fall_silent)
            return
        exit_ = self._job.programs.exit
        if self.program.saves_until_s <= world.now_s:  # otherwise it gets no SIGTERM
            span_s = SLOW_STOP_S if world.chance(profile.slow_stop) else STOP_S
            world.within(span_s, exit_, self.program, {"signal": 15}, cause)
        world.after(grace_s, exit_, self.program, {"signal": 9}, cause)

    def kill(self) -> None:
        """The next agent ends what an earlier one has left behind."""
        if not self.is_unkillable:
            self.vanish(REBOOT)

    # What happens.

    @property
    def is_withdrawn(self) -> bool:
        """Whether a directive that reached the agent ends this program."""
        if self._host.delivered is None:
            return False
        _, attempt, incarnation, action = self._host.delivered
        if self._is_of_last_job:
            return True
        return (attempt, incarnation) > self.program.key or action not in ("run", "save")

    @property
    def _is_of_last_job(self) -> bool:
        """Whether the agent knows that another job has taken the machine."""
        if self._host.delivered is None:
            return False
        tenure, *_ = self._host.delivered
        return tenure > self.program.tenure

    @property
    def is_still(self) -> bool:
        return self.silent_since_s is not None

    def fall_still(self) -> None:
        """It prints nothing from now on, and does nothing."""
        if self.silent_since_s is None:
            self.silent_since_s = self._world.now_s
            self._wake_all()

    def leave(self, facts: Facts) -> None:
        """The process ends, as its agent sees it. Some ends the agent does not report."""
        if self.is_alive:
            ran_s = round(self._world.now_s - self.program.started_s, 3)
            self.program_exit = ProgramExit(**facts, ran_s=ran_s)
            self.program.is_hidden = self.is_withdrawn or self._threads.is_over
            self._close()

    def vanish(self, cause: str) -> None:
        """The process ends with its machine, or with the agent that started it."""
        if self.is_alive:
            self._close()
            if self.program.is_alive:
                self._job.programs.end(self.program, cause)

    def await_end(self) -> None:
        """Park the thread until the process has ended."""
        while self.is_alive:
            self.park()

    def park(self) -> None:
        self._waiting.append(getcurrent())
        self._world.park()

    def _close(self) -> None:
        self.is_alive = False
        self._host.process = None
        self._wake_all()

    def _wake_all(self) -> None:
        for thread in self._waiting:
            self._threads.wake(thread)
        self._waiting.clear()

    def _fall_silent(self) -> None:
        if self.is_alive:
            self._host.silent_since_s = self._world.now_s
            self._host.vm.fail("unkillable")


class VirtualLauncher:
    """Stands for `trainmaster.agent.control.launcher.Launcher`."""

    command: Sequence[str] = ("python3", "-m", "trainer.task")

    def __init__(self, host: AgentHost, job: ExploredJob, tenure: int, threads: Threads) -> None:
        """`job`: that of the agent's configuration, which another job may have succeeded."""
        self._host = host
        self._job = job
        self._tenure = tenure
        self._threads = threads
        self._process: Process | None = None

    def clean_up(self) -> None:
        if self._host.process is not None:
            self._host.process.kill()

    def await_end(self) -> None:
        while self._host.process is not None:
            self._host.process.kill()
            self._threads.pause(LOOKS_AGAIN_S)

    def start(
        self,
        key: IncarnationKey,
        secrets: Mapping[str, str],
        slices: Sequence[str],
        without: Sequence[int] = (),
    ) -> Process:
        del secrets, slices
        if self._host.process is not None:
            self._host.world.violate("two programs on one machine", self._host.vm, key)
        program = self._job.programs.start(
            self._host,
            (key.attempt, key.incarnation),
            tuple(without),
            self._threads,
            self._tenure,
        )
        self._process = program.process
        return program.process

    def wait(self, key: IncarnationKey, process: Process) -> ProgramExit:
        del key
        process.await_end()
        self._process = None
        return process.program_exit

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def process_uses(self) -> dict[int, ProcessUse]:
        """Return what the program has used, once it is still or has ended.

        Samples of a program that works change nothing, so this call waits instead of returning
        them.
        """
        process = self._process
        while process is not None and process.is_alive and process.silent_since_s is None:
            process.park()
        return {1: ProcessUse(cpu_s=1.0, moved=1)}

    def end_stalled(
        self, key: IncarnationKey, process: Process, grace_s: float, in_s: float
    ) -> None:
        del key, grace_s
        if process.silent_since_s is None:
            self._host.world.violate("called stalled while it prints", process.program)
        self._threads.pause(in_s)
        process.has_stalled = True
        process.end(STACK_GRACE_S)

    def show_notice(self) -> None:
        pass

    def prepare_save(self) -> bool:
        return self._process is not None and self._process.program.catches

    def request_save(self) -> str:
        if self._process is not None:
            self._job.programs.save_together(self._process.program)
        return "asked"

    def cancel(self) -> None:
        pass
