"""The harness of `make bench-peers`: what it measures is what happened, and what did not happen is
no value.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from bench.peers import measures
from bench.peers.__main__ import Comparison
from bench.peers.measures import AT_LAST, IN_TURN, started, stockout
from bench.peers.ray import Ray
from bench.peers.run import NotMeasured, Run, is_alive, recovery, until
from bench.peers.system import PROGRAMS, System, free_port
from trainmaster_emulators.checkout import ROOT


class Local(System):
    """One process for each rank, which nothing restarts."""

    name = "local"
    ends = 0
    """Number of runs that were ended."""

    def start(self, run: Run) -> None:
        command = (sys.executable, PROGRAMS / "steps.py", run.file, *run.fewest)
        ranks = ({"RANK": str(rank), "WORLD_SIZE": str(run.ranks)} for rank in range(run.ranks))
        self.started = [self.spawn(*command, env=variables) for variables in ranks]

    def end(self, run: Run) -> None:
        super().end(run)
        self.ends += 1
        assert not any(map(is_alive, run.processes.values()))


def write(run: Run, rank: int, pid: int, moment: str, at: float) -> None:
    with run.file.open("a") as file:
        print(json.dumps({"at": at, "rank": rank, "pid": pid, "moment": moment}), file=file)


def test_phases_are_those_of_processes_that_began_after_the_fault(tmp_path: Path) -> None:
    run = Run(tmp_path / "moments")
    sleeper = subprocess.Popen(["sleep", "60"])
    for rank in (0, 1):
        write(run, rank, sleeper.pid, "start", 1.0)
        write(run, rank, sleeper.pid, "step", 1.1)
    assert run.is_training()

    def fault() -> None:
        sleeper.kill()
        sleeper.wait()
        now = time.time()
        write(run, 0, sleeper.pid, "step", now + 1)  # the old process: no step of a new one
        write(run, rank=0, pid=-1, moment="start", at=now + 5)
        write(run, rank=1, pid=-2, moment="start", at=now + 7)
        write(run, rank=0, pid=-1, moment="import", at=now + 5.5)
        write(run, rank=1, pid=-2, moment="import", at=now + 7.6)
        write(run, rank=0, pid=-1, moment="step", at=now + 8)
        write(run, rank=1, pid=-2, moment="step", at=now + 9)

    phases = recovery(run, fault)
    assert phases["first new process"] == pytest.approx(5, abs=0.5)
    assert phases["last new process"] == pytest.approx(7, abs=0.5)
    assert phases["last import"] == pytest.approx(7.6, abs=0.5)
    assert "last join" not in phases, "a phase that the program does not have"
    assert phases["next step of all ranks"] == pytest.approx(9, abs=0.5)
    assert phases["last old process gone"] < 1


def test_job_that_does_not_go_on_has_no_value(tmp_path: Path) -> None:
    run = Run(tmp_path / "moments")
    for rank in (0, 1):
        write(run, rank, os.getpid(), "start", 1.0)
        write(run, rank, os.getpid(), "step", 1.1)
    with pytest.raises(NotMeasured, match="no step of all ranks in new processes within 0 s"):
        recovery(run, lambda: write(run, 0, os.getpid(), "step", time.time()), within_s=0.1)


def test_program_saves_when_it_is_asked_and_ends_when_it_shall(tmp_path: Path) -> None:
    for ask, last in (
        (lambda run: os.kill(run.processes[0], signal.SIGTERM), "saved"),
        (Run.finish, "end"),
    ):
        run = Run(tmp_path / last, ranks=1)
        process = subprocess.Popen(
            [sys.executable, PROGRAMS / "steps.py", run.file], stdout=subprocess.DEVNULL
        )
        until(run.is_training, "step")
        ask(run)
        assert process.wait(30) == 0
        assert run.moments[-1].moment == last


def test_ranks_that_meet_share_a_step_and_fail_without_each_other(tmp_path: Path) -> None:
    system, run = Local(tmp_path / "local"), Run(tmp_path / "moments", fewest=(2,))
    started(system, run)
    os.kill(run.processes[1], signal.SIGKILL)
    assert system.started[0].wait(30) == 1
    steps = [
        [moment.at for moment in run.moments if moment.moment == "step" and moment.rank == rank]
        for rank in (0, 1)
    ]
    assert abs(len(steps[0]) - len(steps[1])) <= 1
    system.end(run)


@pytest.mark.heavy(
    fact="each rank of the program with a collective fails without the other, and ends with it",
    quick="`integration/bench/test_peers.py` with ranks that meet without PyTorch",
)
@pytest.mark.timeout(300)
def test_ranks_with_a_collective_fail_without_each_other_and_end_together(tmp_path: Path) -> None:
    python = ROOT / ".images" / "pytorch" / "bin" / "python"
    for stop, statuses in (
        (lambda run: os.kill(run.processes[1], signal.SIGKILL), [1, -signal.SIGKILL]),
        (Run.finish, [0, 0]),
    ):
        run = Run(tmp_path / str(statuses[0]), has_collective=True)
        cluster = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
        ranks = [
            subprocess.Popen(
                [python, PROGRAMS / "ddp.py", run.file],
                env={**os.environ, **cluster, "RANK": str(rank)},
            )
            for rank in range(run.ranks)
        ]
        until(run.is_training, "step", 200)
        assert len(run.firsts("import")) == len(run.firsts("join")) == 2
        stop(run)
        assert [rank.wait(60) for rank in ranks] == statuses


def test_row_of_a_collective_says_why_a_system_without_pytorch_has_no_value(tmp_path: Path) -> None:
    system = Local(tmp_path / "local")
    comparison = Comparison(time.monotonic() + 60, ["collective"])
    comparison.measure(IN_TURN, [system], 1)
    row = comparison.rows["SIGKILL of a process, DDP over gloo: next step of all ranks"]
    assert row.cell("local") == "has no PyTorch here"


class Shrinking(Local):
    """It goes on with one rank as soon as the other one is lost, and with both as soon
    as it can.
    """

    def lose_machine(self, run: Run) -> None:
        self._replace(run, 1)

    def offer_machine(self, run: Run) -> None:
        self._replace(run, run.ranks)

    def _replace(self, run: Run, ranks: int) -> None:
        self.down()
        self.start(replace(run, ranks=ranks))


def test_stockout_has_steps_of_fewer_ranks_and_of_all_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "STOCKOUT_S", 4.0)
    monkeypatch.setattr(measures, "WINDOW_S", 8.0)
    monkeypatch.setattr(measures, "SETTLES_S", 0.0)
    system, run = Shrinking(tmp_path / "local"), Run(tmp_path / "moments")
    try:
        values = {
            name.rpartition(": ")[2]: value
            for row in stockout(system, run, 1)
            for name, value in row.items()
        }
    finally:
        system.end(run)
    assert 2 < values["steps/s of one process"] <= 5.1, (
        "one of two ranks takes a step in twice the time"
    )
    assert 0 < values["next step, by one process"] < 4
    assert 0 < values["from the new machine to the next step of all ranks"] < 4
    # In 4 s of one rank at 5 steps a second, and 4 s of two ranks at 10.
    assert 10 < values["steps"] <= 61
    rigid, run = Local(tmp_path / "rigid"), Run(tmp_path / "others")
    with pytest.raises(NotMeasured, match="has no machines"):
        list(stockout(rigid, run, 2))
    rigid.end(run)


def test_jobs_are_kept_until_there_are_as_many_as_the_row_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measures, "IDLE_S", 0.1)
    monkeypatch.setattr(measures, "SETTLES_S", 0.0)
    kept: list[int] = []
    monkeypatch.setattr(Local, "keep", lambda _, count: kept.append(count))
    measure, _ = AT_LAST["jobs"]
    rows = [
        name
        for values in measure(Local(tmp_path / "local"), Run(tmp_path / "moments"))
        for name in values
    ]
    assert kept == [0, 100, 900]
    assert [name for name in rows if name.endswith("MiB")] == [
        f"{count} jobs wait: MiB" for count in (0, 100, 1000)
    ]


def start(system: System, run: Run) -> Iterator[dict[str, float]]:
    yield started(system, run)
    raise NotMeasured("no last line")


def test_rows_have_the_values_of_each_round_and_the_reasons(tmp_path: Path) -> None:
    system = Local(tmp_path / "local")
    comparison = Comparison(time.monotonic() + 60, ["start", "notice", "again"])
    measured = {
        "start": (start, "new job: last line"),
        "notice": IN_TURN["notice"],
        "again": (
            lambda system, run: [started(system, run)],
            "new job: first line of all processes",
        ),
        "unselected": (start, "another row"),
    }
    for _ in range(2):
        comparison.measure(measured, [system], 1)
    rows = comparison.rows
    assert rows.keys() == {
        "new job: first line of all processes",
        "new job: last line",
        "notice of the end of a machine: processes that saved",
    }
    values = rows["new job: first line of all processes"].values["local"]
    assert len(values) == 4, (
        "two rounds of one measure, and what the others measured before something did not happen"
    )
    assert rows["new job: last line"].cell("local") == "no last line"
    assert all(0 < value < 60 for value in values)
    assert (
        rows["notice of the end of a machine: processes that saved"].cell("local")
        == "has no notice"
    )
    # Three measures in the first round; in the second one only `again`, because the others failed.
    assert system.ends == 4, "each run is ended, and what did not happen is not tried again"
    comparison.deadline = 0
    comparison.measure(measured, [system], 1)
    assert system.ends == 4, "no measurement begins after the time limit"


def test_end_of_a_system_ends_all_that_it_started(tmp_path: Path) -> None:
    system, run = Local(tmp_path / "local"), Run(tmp_path / "moments")
    started(system, run)
    system.down()
    until(lambda: not any(map(is_alive, run.processes.values())), "end of the processes", 10)


def test_program_of_a_peer_is_counted_and_the_common_one_is_not() -> None:
    assert len(Local.lines()) == 0
    assert [line for line in Ray.lines() if "steps.run" in line]
