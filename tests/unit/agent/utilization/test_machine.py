"""CPU and memory from files of the kernel, of which the tests write their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainmaster.agent.utilization.machine import (
    OwnCgroup,
    OwnProcesses,
    WholeMachine,
    find_machine,
)

MEMINFO = """\
MemTotal:       4000000 kB
MemFree:         100000 kB
MemAvailable:   1000000 kB
HugePages_Total:      0
"""
STAT = """\
cpu  1000 200 300 90000 500 40 60 0 70 0
cpu0 500 100 150 45000 250 20 30 0 35 0
cpu1 500 100 150 45000 250 20 30 0 35 0
intr 1
"""


def write(root: Path, name: str, text: str) -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_cgroup(
    root: Path, cpu_max: str = "150000 100000", memory_max: str = "2048000000"
) -> None:
    folder = root / "sys/fs/cgroup"
    folder.mkdir(parents=True)
    (folder / "cpu.stat").write_text("usage_usec 12500000\nuser_usec 1\n")
    (folder / "cpu.max").write_text(f"{cpu_max}\n")
    (folder / "memory.current").write_text("1536000000\n")
    (folder / "memory.max").write_text(f"{memory_max}\n")
    (folder / "memory.stat").write_text("anon 1\ninactive_file 512000000\n")


def a_process(
    root: Path, pid: int, parent: int, ticks: str, pages: int, command: str = "python"
) -> None:
    """`ticks`: utime, stime, cutime and cstime."""
    before = f"{pid} ({command}) S {parent} 1 1 0 -1 4194304 1 2 3 4"
    write(root, f"proc/{pid}/stat", f"{before} {ticks} 20 0 1 0 99 1000000 {pages} 184467")


def test_whole_machine_counts_busy_time_of_all_cpus(tmp_path: Path) -> None:
    write(tmp_path, "proc/stat", STAT)
    write(tmp_path, "proc/meminfo", MEMINFO)
    reading = WholeMachine(tmp_path).read()
    assert reading.cpu_s == (1000 + 200 + 300 + 40 + 60) / os.sysconf("SC_CLK_TCK")
    assert (reading.cpus, reading.memory) == (2, 0.75)


def test_container_is_measured_by_its_own_limits(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", MEMINFO)
    write_cgroup(tmp_path)
    reading = OwnCgroup(tmp_path).read()
    assert (reading.cpu_s, reading.cpus, reading.memory) == (12.5, 1.5, 0.5)


def test_container_without_limits_has_the_whole_machine(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", MEMINFO)
    write_cgroup(tmp_path, "max 100000", "max")
    reading = OwnCgroup(tmp_path).read()
    assert reading.cpus == len(os.sched_getaffinity(0))
    assert reading.memory == 1_024_000_000 / 4_096_000_000


def test_processes_of_other_vms_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", MEMINFO)
    write(tmp_path, "proc/version", text="")
    a_process(tmp_path, pid=10, parent=1, ticks="100 50 30 20", pages=1000)
    a_process(
        tmp_path, pid=11, parent=10, ticks="200 0 0 0", pages=2000, command="a (strange) name"
    )
    a_process(tmp_path, pid=12, parent=11, ticks="400 0 0 0", pages=0)
    a_process(tmp_path, pid=20, parent=1, ticks="9999 0 0 0", pages=999_999)
    reading = OwnProcesses(tmp_path, pid=10).read()
    assert reading.cpu_s == 800 / os.sysconf("SC_CLK_TCK")
    assert reading.memory == 3000 * os.sysconf("SC_PAGE_SIZE") / 4_096_000_000


def test_cpu_time_does_not_fall_when_a_process_leaves_the_tree(tmp_path: Path) -> None:
    write(tmp_path, "proc/meminfo", MEMINFO)
    a_process(tmp_path, pid=10, parent=1, ticks="100 0 0 0", pages=0)
    a_process(tmp_path, pid=11, parent=10, ticks="200 0 0 0", pages=0)
    machine = OwnProcesses(tmp_path, pid=10)
    before = machine.read().cpu_s
    a_process(tmp_path, pid=11, parent=1, ticks="200 0 0 0", pages=0)
    assert machine.read().cpu_s == before


def test_processes_of_the_programs_container_count_also_after_its_end(tmp_path: Path) -> None:
    """They are no descendants of the agent."""
    write(tmp_path, "proc/meminfo", MEMINFO)
    a_process(tmp_path, pid=10, parent=1, ticks="100 0 0 0", pages=1000)
    a_process(tmp_path, pid=20, parent=1, ticks="300 0 0 0", pages=2000)
    a_process(tmp_path, pid=21, parent=20, ticks="200 0 0 0", pages=0)
    a_process(tmp_path, pid=30, parent=1, ticks="50 0 0 0", pages=0)
    container = [20, 21]
    machine = OwnProcesses(tmp_path, pid=10, processes=lambda: container)
    reading = machine.read()
    assert reading.cpu_s == 600 / os.sysconf("SC_CLK_TCK")
    assert reading.memory == 3000 * os.sysconf("SC_PAGE_SIZE") / 4_096_000_000
    container[:] = []
    assert machine.read().cpu_s == reading.cpu_s
    container[:] = [30]
    assert machine.read().cpu_s == 650 / os.sysconf("SC_CLK_TCK")


def test_cpu_time_of_an_ended_child_stays(tmp_path: Path) -> None:
    machine = OwnProcesses()
    before = machine.read().cpu_s
    burn = "import time\nwhile time.process_time() < 0.3: pass"
    subprocess.run([sys.executable, "-c", burn], check=True)
    assert machine.read().cpu_s >= before + 0.285, "times are sums of ticks of 10 ms"


@pytest.mark.parametrize(
    ("environ", "has_cgroup", "expected"),
    [
        ({"TRAINMASTER_EMULATED_VM": "x"}, True, OwnProcesses),
        ({}, True, OwnCgroup),
        ({}, False, WholeMachine),
    ],
    ids=["local stack", "container", "VM"],
)
def test_machine_is_recognized(
    tmp_path: Path, environ: dict[str, str], has_cgroup: bool, expected: type
) -> None:
    """The root cgroup of a VM has cpu.stat, but no memory.current."""
    write(tmp_path, "sys/fs/cgroup/cpu.stat", "usage_usec 1\n")
    if has_cgroup:
        write_cgroup(tmp_path / "container")
    assert isinstance(
        find_machine(environ, tmp_path / "container" if has_cgroup else tmp_path), expected
    )


def test_this_machine_can_be_read() -> None:
    for machine in (WholeMachine(), OwnProcesses(), find_machine({})):
        reading = machine.read()
        assert reading.cpu_s >= 0
        assert reading.cpus > 0
        assert 0 < reading.memory <= 1
