"""The measures that `bench.peers` takes on each system, such as Trainmaster or Ray.

The tables at the end name the measures. A measure starts a program on a system
(`bench.peers.system`), injects a fault and yields values by the name of their row in
docs/benchmarks.md, in seconds unless the name begins with a unit. It may raise NotMeasured.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final

from bench.peers.run import LIMIT_S, NotMeasured, Run, footprint, kill, recovery, until
from bench.peers.system import STARTS_S, System

Values = dict[str, float]
"""Name of a row → its value."""
IDLE_S: Final = 60.0
"""Time in which the processor time of an idle system is counted."""
SETTLES_S: Final = 10.0
"""Time from a change until a measurement."""
TRAINS_ON_S: Final = 15.0
"""Time for which a program must go on without its controller."""
NOTICE_S: Final = 15.0
"""Time for a save after a notice."""
STEPS_S: Final = 3.0
"""Time in which a program with a collective takes steps before a fault."""
HANG_ALLOWED_S: Final = 60.0
"""Time for which a program may hang before a system may end it."""
TRIALS: Final = 8
"""Trials that every system's search has."""
STOCKOUT_S: Final = 120.0
"""Time after the loss of a machine in which there is no other one."""
WINDOW_S: Final = 180.0
"""Time from that loss in which steps are counted."""
WAITING_JOBS: Final = (0, 100, 1000)
"""Numbers of waiting jobs at which an idle system is measured."""
POLL_S: Final = 0.1
"""Pause between two looks for the saves of a program."""
STEP_AGE_S: Final = 2.0
"""A process trains if its last step is no older."""
COLLECTIVE: Final = "SIGKILL of a process, DDP over gloo"
ELASTIC: Final = "a machine is lost, another one exists after 2 of 3 minutes"


def started(system: System, run: Run, start: Callable[[Run], None] | None = None) -> Values:
    """Start the program, and wait until every rank has taken a step."""
    began = time.time()
    (start or system.start)(run)
    until(lambda: run.is_training() or system.has_failed, "first step", STARTS_S)
    if not run.is_training():
        raise NotMeasured("its program does not start")
    return {"new job: first line of all processes": run.firsts("start")[-1] - began}


def _recovery(name: str, run: Run, fault: Callable[[], None], within_s: float = LIMIT_S) -> Values:
    return {
        f"{name}: {phase}": seconds for phase, seconds in recovery(run, fault, within_s).items()
    }


def exit_(system: System, run: Run) -> Iterator[Values]:
    """Kill one process of a program that trains."""
    yield started(system, run)
    yield _recovery(
        "SIGKILL of a process", run, partial(os.kill, run.processes[run.ranks - 1], signal.SIGKILL)
    )


def collective(system: System, plain_run: Run) -> Iterator[Values]:
    """Kill one process of a program whose processes meet in a collective at each step."""
    run = replace(plain_run, has_collective=True)
    started(system, run, system.start_collective)
    time.sleep(STEPS_S)
    kill_last = partial(os.kill, run.processes[run.ranks - 1], signal.SIGKILL)
    yield _recovery(COLLECTIVE, run, kill_last)


def machine(system: System, run: Run) -> Iterator[Values]:
    """Lose a machine of a program that trains, and have another one at once."""
    yield started(system, run)

    def lose() -> None:
        system.lose_machine(run)
        system.offer_machine(run)

    yield _recovery("loss of a machine", run, lose)


def stockout(system: System, plain_run: Run, fewest: int) -> Iterator[Values]:
    """Lose a machine of a program that trains, and have another one after a while.

    `fewest`: with how many ranks (processes that train together) the program may go on meanwhile.
    """
    run = replace(plain_run, fewest=(fewest,))
    started(system, run)
    time.sleep(SETTLES_S)
    began = time.time()
    system.lose_machine(run)
    time.sleep(STOCKOUT_S)
    offered = time.time()
    system.offer_machine(run)
    time.sleep(WINDOW_S - STOCKOUT_S)
    all_steps = [
        moment.at for moment in run.moments if moment.moment == "step" and moment.rank == 0
    ]
    steps = [at for at in all_steps if began < at < began + WINDOW_S]
    name = f"{ELASTIC}, not elastic" if fewest == run.ranks else ELASTIC
    yield {f"{name}: steps": len(steps)}
    alone_from = min(run.firsts("start", began), default=offered)
    alone = [at for at in steps if alone_from < at < offered]
    if len(alone) > 1:
        yield {f"{name}: next step, by one process": alone[0] - began}
        yield {f"{name}: steps/s of one process": (len(alone) - 1) / (alone[-1] - alone[0])}
    until(lambda: run.is_training(offered), "step of all ranks with the new machine")
    yield {
        f"{name}: from the new machine to the next step of all ranks": (
            run.firsts("step", offered)[-1] - offered
        )
    }


def hang(system: System, run: Run) -> Iterator[Values]:
    """Stop one process by SIGSTOP, so that all others wait for it."""
    started(system, run, system.hang)
    stop = partial(os.kill, run.processes[1], signal.SIGSTOP)
    yield _recovery("hang of a process, 60 s allowed", run, stop, HANG_ALLOWED_S + LIMIT_S)


def notice(system: System, run: Run) -> Iterator[Values]:
    """Announce the end of a machine, and count the processes that save."""
    yield started(system, run)
    began = time.time()
    system.announce(run)
    deadline = began + NOTICE_S
    while time.time() < deadline and len(run.firsts("saved")) < run.ranks:
        time.sleep(POLL_S)
    saves = run.firsts("saved")
    yield {"notice of the end of a machine: processes that saved": len(saves)}
    if saves:
        yield {"notice of the end of a machine: last save": saves[-1] - began}


def trials(system: System, run: Run) -> Iterator[Values]:
    """Run a search for hyperparameters."""
    began = time.time()
    system.tune(run)

    def ends() -> list[float]:
        return [moment.at for moment in run.moments if moment.moment == "end"]

    until(lambda: len(ends()) >= TRIALS, f"end of {TRIALS} trials", STARTS_S)
    yield {"eight trials of a second, two at a time: end of the last": max(ends()) - began}


def controller(system: System, run: Run) -> Iterator[Values]:
    """Kill the processes of the system's controller. Count the processes that go on training, and
    kill one of them.
    """
    started(system, run)
    old = set(run.processes.values())
    for pid in system.controller():
        os.kill(pid, signal.SIGKILL)
    time.sleep(TRAINS_ON_S)
    stepping = {
        moment.pid
        for moment in run.moments
        if moment.moment == "step" and moment.at > time.time() - STEP_AGE_S
    }
    name = "SIGKILL of the controller"
    yield {f"{name}: processes that train on": len(stepping & old)}
    if stepping:
        yield _recovery(f"{name}, then of a process", run, partial(kill, *list(stepping & old)[:1]))


def idle(system: System, _: Run) -> Iterator[Values]:
    """Measure what the system needs while no job runs."""
    yield {f"idle: {what}": value for what, value in footprint(system.idle(), IDLE_S).items()}


def jobs(system: System, _: Run) -> Iterator[Values]:
    """Idle, with more and more jobs that wait."""
    waiting = 0
    for count in WAITING_JOBS:
        system.keep(count - waiting)
        waiting = count
        time.sleep(SETTLES_S)
        yield {
            f"{count} jobs wait: {what}": value
            for what, value in footprint(system.idle(), IDLE_S).items()
        }


Measure = Callable[[System, Run], Iterable[Values]]
# Tables: name of a measure → the function that measures, and the row whose cell gets the reason if
# there is no value
NEXT: Final = "next step of all ranks"
IN_TURN: Final[dict[str, tuple[Measure, str]]] = {
    "exit": (exit_, f"SIGKILL of a process: {NEXT}"),
    "collective": (collective, f"{COLLECTIVE}: {NEXT}"),
    "machine": (machine, f"loss of a machine: {NEXT}"),
    "notice": (notice, "notice of the end of a machine: processes that saved"),
    "trials": (trials, "eight trials of a second, two at a time: end of the last"),
}
"""Measured once in each round, one system after the other."""
AT_ONCE: Final[dict[str, tuple[Measure, str]]] = {
    "idle": (idle, "idle: processes"),
    "hang": (hang, f"hang of a process, 60 s allowed: {NEXT}"),
    "elastic": (partial(stockout, fewest=1), f"{ELASTIC}: steps"),
    "fixed": (partial(stockout, fewest=2), f"{ELASTIC}, not elastic: steps"),
}
"""Mostly waiting: measured once, on all systems at the same time."""
AT_LAST: Final[dict[str, tuple[Measure, str]]] = {
    "controller": (controller, f"SIGKILL of the controller, then of a process: {NEXT}"),
    "jobs": (jobs, "1000 jobs wait: processes"),
}
"""Mostly waiting, too. Measured once, after everything else, because it leaves some systems broken.
"""
UNITS: Final = ("processes", "MiB", "%", "lines", "steps", "steps/s")
"""First words of rows that are not in seconds."""
