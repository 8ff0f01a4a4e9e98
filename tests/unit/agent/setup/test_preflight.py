"""The preflight, which examines a machine before a program starts on it: seeded faults are named,
and healthy machines of all kinds are not blamed.

Its facts are the output of `nvidia-smi` and the kernel's log, in which the NVIDIA driver reports
errors as numbered *Xids*, and also the clock and the disk.
"""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import pytest

from tests.integration.agent.support.vm import agent_identity
from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup import preflight
from trainmaster.agent.setup.preflight import SKEW_MAX_S, Preflight, describe_gpus, describe_xid
from trainmaster.agent.workspace import Workspace

# Of eight GPUs each: no memory errors, no replaced rows, and no such numbers.
ZEROES: Final = "".join(f"{gpu}, 0\n" for gpu in range(8))
ROWS: Final = "".join(f"00000000:{gpu:02X}:00.0, 0, 0\n" for gpu in range(4, 12))
NOT_AVAILABLE: Final = "".join(f"{gpu}, [N/A]\n" for gpu in range(8))
# What nvidia-smi prints on a healthy machine with eight GPUs: memory errors, replaced rows.
LISTS: Final = (
    (ZEROES, ROWS),
    (ZEROES, ROWS.replace("0, 0\n", "No, No\n")),
    (ZEROES, ""),  # a driver before 450 knows no rows, and exits with status 1
    (NOT_AVAILABLE, ""),  # ECC is off, or the GPU has none
    (
        NOT_AVAILABLE.replace("N/A", "Not Supported"),
        ROWS.replace("0, 0\n", "[Not Supported], [Not Supported]\n"),
    ),
    (NOT_AVAILABLE, ROWS.replace("0, 0\n", "[N/A], [N/A]\n")),  # T4, L4, MIG
    (ZEROES.replace("0\n", "[Unknown Error]\n"), ""),
    ("", ""),  # no nvidia-smi, as in Container-Optimized OS; or it takes too long
    ("No devices were found\n", "No devices were found\n"),
    (
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version:"
            " 580.95\n"
        ),
        "",
    ),
    ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n", ""),
)
XID: Final = "[   90.117] NVRM: Xid (PCI:0000:04:00): {}, pid=2142, name=python3, {}\n"
# Lines of healthy machines: the driver's start, and what programs and the driver may cause.
KERNEL_LOG: Final = (
    "[    0.000000] Linux version 6.12.57+deb13-cloud-amd64 (debian-kernel@lists.debian.org)\n",
    (
        "[    4.811] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release"
        " Build\n"
    ),
    "[    5.002] nvidia 0000:00:04.0: enabling device (0000 -> 0002)\n",
    "[    6.310] NVRM: GPU at PCI:0000:04:00: GPU-79c5bfd0-48e9-95ab-1401-431640d1f0a1\n",
    "[   12.640] nvidia-nvlink: Nvlink Core is being initialized, major device number 240\n",
    (
        "[   48.000] EXT4-fs (sda1): mounted filesystem with ordered data mode. Opts: (null). Quota"
        " mode: none.\n"
    ),
    (
        "[   79.095] Memory cgroup out of memory: Killed process 640 (python3) total-vm:79488kB,"
        " anon-rss:95140kB\n"
    ),
    XID.format(13, "Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Out Of Range Address"),
    XID.format(
        31,
        "Ch 00000048, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_0 faulted @"
        " 0x7f79_95000000",
    ),
    XID.format(43, "Ch 00000079"),
    XID.format(45, "Ch 00000048"),
    XID.format(
        63,
        "Row Remapper: New row (0x0000000000000048) marked for remapping, reset gpu to activate.",
    ),
    XID.format(92, "High single-bit ECC error rate"),
    XID.format(94, "Contained: CE User Channel (0x9). RST: No, D-RST: No"),
    XID.format(
        119,
        "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76"
        " (GSP_RM_CONTROL)",
    ),
    XID.format(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
)


def test_no_machine_of_1000_healthy_gangs_is_blamed() -> None:
    """Each gang has 2 to 16 machines of one image, with one to eight GPUs, and with its own kernel
    log.
    """
    rng = random.Random(144)  # noqa: S311 - a seed for repeatable machines
    blamed: list[str] = []
    machines = 0
    for _ in range(1000):
        gpus = rng.choice((1, 2, 4, 8))
        ecc, rows = (
            "".join(listed.splitlines(keepends=True)[:gpus]) for listed in rng.choice(LISTS)
        )
        for _ in range(rng.randint(2, 16)):
            machines += 1
            log = "".join(rng.sample(KERNEL_LOG, rng.randint(0, len(KERNEL_LOG))))
            blamed += filter(None, (describe_gpus(gpus, ecc, rows), describe_xid(log)))
    print(machines, "machines")
    assert blamed == []


@pytest.mark.parametrize(
    ("ecc", "rows", "found"),
    [
        (ZEROES.replace("7, 0\n", ""), "", "7 of 8 GPUs answer"),
        (
            ZEROES.replace(
                "7, 0\n", "Unable to determine the device handle for GPU7: GPU is lost.\n"
            ),
            ROWS,
            "7 of 8",
        ),
        (
            ZEROES.replace("3, 0", "3, 2"),
            ROWS,
            "the memory of GPU 3 has failed (uncorrected errors: 2)",
        ),
        (
            ZEROES,
            ROWS.replace("06:00.0, 0", "06:00.0, 1"),
            "GPU 00000000:06:00.0 has failed (replacements of rows pending, failed: 1, 0)",
        ),
        (
            ZEROES,
            ROWS.replace("05:00.0, 0, 0", "05:00.0, No, Yes"),
            "GPU 00000000:05:00.0 has failed (replacements of rows pending, failed: No, Yes)",
        ),
    ],
)
def test_fault_of_a_gpu_is_named(ecc: str, rows: str, found: str) -> None:
    assert found in describe_gpus(8, ecc, rows)


@pytest.mark.parametrize("xid", preflight.HARDWARE_XIDS)
def test_xid_of_failed_hardware_is_named_with_its_gpu(xid: int) -> None:
    log = "".join(KERNEL_LOG) + XID.format(xid, "…")
    assert describe_xid(log).startswith(f"Xid (PCI:0000:04:00): {xid}, ")
    # An old driver.
    assert describe_xid(f"NVRM: Xid (0000:04:00): {xid}, 0x7").startswith(
        f"Xid (0000:04:00): {xid}"
    )


class Machine:
    """A machine with programs and a clock, whose second reading may differ from the first.

    It is also its metadata server, which knows the right time.
    """

    def __init__(self, folder: Path, **config: Any) -> None:
        self.environ = {"PATH": f"{folder}{os.pathsep}{os.defpath}"}
        self.folder, self.pauses = folder, list[float]()
        self.skews_s: Iterator[float] = itertools.repeat(0.0)
        """How far the machine's clock is ahead at each reading."""
        self.config = agent_identity(**{"preflight": "on", "gpus": 8, **config}).config
        self.is_reachable = True
        self.install("nvidia-smi", "exit 9")
        self.install("dmesg", "exit 1")

    def install(self, name: str, script: str) -> None:
        program = self.folder / name
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def time(self) -> str:
        if not self.is_reachable:
            raise HttpError(0, "timed out")
        return time.strftime(
            "%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - next(self.skews_s))
        )

    def examine(self, *, is_first: bool = True) -> str:
        """Return why the machine is unfit; empty: it is not."""
        workspace = Workspace(self.folder, self.environ, Console())
        examined = Preflight(
            self.config, workspace, cast("MetadataServer", self), self.pauses.append
        )
        examined.start(is_first=is_first)
        failure = examined.failure()
        assert (failure.error["message"] if failure else "") == examined.finding
        assert failure is None or (failure.cause, failure.error["type"]) == (
            "setup",
            "UnfitMachine",
        )
        return examined.finding


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_machine_whose_facts_are_unknown_is_fit(machine: Machine) -> None:
    machine.is_reachable = False
    assert (machine.examine(), machine.pauses) == ("", [])


def test_four_faults_are_named_together(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.install("nvidia-smi", r'case "$*" in *ecc*) printf "0, 0\n1, 0\n";; esac')
    machine.install("dmesg", f"echo '{XID.format(79, 'GPU has fallen off the bus.').strip()}'")
    machine.skews_s = itertools.repeat(95.0)

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    # The clock's difference is rounded, and the reading takes a moment.
    assert set(machine.examine().replace("96 s", "95 s").split("; ")) == {
        "2 of 8 GPUs answer",
        "Xid (PCI:0000:04:00): 79, pid=2142, name=python3, GPU has fallen off the bus",
        "its clock is 95 s from Google's",
        "its disk cannot be written (Input/output error)",
    }
    assert {file.name for file in machine.folder.iterdir()} == {"nvidia-smi", "dmesg"}


def test_fault_that_is_gone_at_the_second_reading_is_none(machine: Machine) -> None:
    """A driver that is starting, and a clock that NTP sets."""
    machine.install(
        "nvidia-smi", 'test -e "$0.started" && exit 9; touch "$0.started"; echo 0, 0; echo 1, 0'
    )
    machine.skews_s = iter((-3600.0, 0.4))
    assert machine.examine() == ""
    assert machine.pauses == [preflight.AGAIN_S] * 2


@pytest.mark.parametrize("skew_s", [-3600, -SKEW_MAX_S - 2, SKEW_MAX_S + 2, 3600])
def test_wrong_clock_is_named_however_it_is_wrong(machine: Machine, skew_s: float) -> None:
    machine.skews_s = itertools.repeat(skew_s)
    assert "its clock is" in machine.examine()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EACCES])
def test_disk_that_is_only_full_is_no_fault(
    machine: Machine, error: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "fsync", fail)
    assert machine.examine() == ""


def test_check_that_takes_too_long_has_found_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.install("nvidia-smi", f"exec {shutil.which('sleep')} 600")
    monkeypatch.setattr(preflight, "LIMIT_S", 0.1)
    began_at = time.monotonic()
    assert machine.examine(is_first=False) == ""
    assert time.monotonic() - began_at < 300


def test_later_starts_examine_the_gpus_only(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.skews_s = itertools.repeat(3600.0)
    monkeypatch.setattr(os, "fsync", pytest.fail)
    assert machine.examine(is_first=False) == ""


def test_report_names_the_fault_and_off_looks_for_none(tmp_path: Path) -> None:
    for mode, found in (("report", "its clock is"), ("off", "")):
        machine = Machine(tmp_path, preflight=mode)
        machine.skews_s = itertools.repeat(60.0)
        examined = Preflight(
            machine.config,
            Workspace(tmp_path, environ={}, console=Console()),
            cast("MetadataServer", machine),
            machine.pauses.append,
        )
        examined.start(is_first=True)
        assert examined.failure() is None
        assert examined.finding.startswith(found)
        assert bool(examined.finding) is bool(found)


def test_machine_without_gpus_runs_no_program(tmp_path: Path) -> None:
    machine = Machine(tmp_path, gpus=0)
    machine.install("dmesg", f"echo '{XID.format(79, '').strip()}'")
    assert machine.examine() == ""


def test_emulated_vm_does_not_look_at_the_developers_machine(tmp_path: Path) -> None:
    (tmp_path / "vm").mkdir()
    (tmp_path / "developer").mkdir()
    machine, developer = Machine(tmp_path / "vm"), Machine(tmp_path / "developer")
    developer.install("nvidia-smi", "echo 0, 0")
    (machine.folder / "nvidia-smi").unlink()
    machine.environ = {
        "PATH": f"{machine.folder}{os.pathsep}{developer.folder}",
        "TRAINMASTER_EMULATED_VM": "vm",
    }
    assert machine.examine() == ""
