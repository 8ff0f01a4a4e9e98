"""The preflight: whether the machine has a fault that would fail the program.

`setup.py` starts it with each preparation of a program, and asks for the result at the end. The
checks run in threads beside the rest of the set-up; a check that takes longer than `LIMIT_S` has
found nothing. docs/preflight.md says what is a fault. Each fault must be found twice, and what
cannot be determined is no fault.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.results import SetupFailure
from trainmaster.agent.model.vm_config import VmConfig
from trainmaster.agent.program.devices import tool_output
from trainmaster.agent.setup.setup_errors import new_setup_error
from trainmaster.agent.workspace import EMULATED_VM, Workspace

UNFIT = "UnfitMachine"
"""Type of the error. Its cause is ``setup``, which control planes of all releases know."""
LIMIT_S = 10.0
"""Longest time for all checks."""
AGAIN_S = 3.0  # between two readings: a driver may be starting, and NTP may be setting the clock
SKEW_MAX_S = 30.0  # how wrong the clock may be
DISK_MIB = 64  # written to try the disk
HARDWARE_XIDS = (48, 64, 79, 95, 140, 143)
"""Xids after which NVIDIA resets the GPU or its machine, and that no program causes.

Of 74 (NVLink) some are harmless, 94 (contained) needs a restart of the program only, and 119 and
120 may come from the driver. Source: NVIDIA, "Analyzing Xid Errors with the Xid Catalog", columns
"Resolution Bucket".
"""
DEVICE_ERRORS = (errno.EIO, errno.EROFS, errno.ETIMEDOUT, errno.ENODEV, errno.ENXIO, errno.EUCLEAN)
"""Errors of a write that say that the disk, or its file system, has failed.

After one, ext4 becomes read-only.
"""
SMI = ("nvidia-smi", "--format=csv,noheader,nounits")
ECC = (*SMI, "--query-gpu=index,ecc.errors.uncorrected.volatile.total")
ROWS = (*SMI, "--query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure")
_XID = re.compile(r"NVRM: (Xid \([^)]+\): (\d+)\b.{,100})")


@dataclass
class Preflight:
    """The checks of one machine. Call `start`, and then `failure`, for each program."""

    config: VmConfig
    workspace: Workspace
    metadata: MetadataServer
    pause: Callable[[float], object]
    """Sleeps for a number of seconds."""
    finding: str = ""
    """What the last preflight has found; empty: nothing."""
    leftover: str = ""
    """What the previous job of this VM has left, and cannot be removed; empty: nothing.

    It is a fault of the machine even if the preflight is off.
    """
    _threads: list[threading.Thread] = field(default_factory=list)
    """One for each check that was started."""
    _found: list[str] = field(default_factory=list)
    """Faults that the checks have found so far.

    Each start makes a new list: a check that was given up, and ends late, adds to the old one.
    """
    _deadline: float = 0.0
    """When checks are given up, by the monotonic clock."""

    def start(self, *, is_first: bool) -> None:
        """Start the checks. `is_first`: no program has run on this VM yet."""
        gpus = self.config.gpus
        is_on = self.config.preflight != "off"
        checks: list[Callable[[], str]] = []
        if is_on and is_first:
            checks += [self._clock, self._disk]
        if is_on and gpus:
            checks.append(lambda: describe_gpus(gpus, self._output(ECC), self._output(ROWS)))
            checks.append(lambda: describe_xid(self._output(("dmesg",))))
        self._found = []
        self._deadline = time.monotonic() + LIMIT_S
        self._threads = [
            threading.Thread(target=self._examine, args=(check, self._found), daemon=True)
            for check in checks
        ]
        for thread in self._threads:
            thread.start()

    def failure(self) -> SetupFailure | None:
        """Wait for the checks.

        Return why this VM cannot run the program; None: it can, as far as is known.
        """
        for thread in self._threads:
            thread.join(max(0.0, self._deadline - time.monotonic()))
        faults = [self.leftover] if self.leftover else []
        faults += self._found
        self.finding = "; ".join(faults)
        if self.finding:
            self.workspace.log(f"This machine failed the preflight: {self.finding}.")
        prevents_start = self.config.preflight == "on" or self.leftover
        if not self.finding or not prevents_start:
            return None
        return new_setup_error(UNFIT, self.finding, transient=True).failure

    def _examine(self, check: Callable[[], str], found: list[str]) -> None:
        """Make one check, in its own thread. A fault counts if it is found twice."""
        if check():
            self.pause(AGAIN_S)
            fault = check()
            if fault:
                found.append(fault)

    def _output(self, command: tuple[str, ...]) -> str:
        """Return what a program prints; empty if it is missing or fails."""
        path = self.workspace.environ.get("PATH", os.defpath)
        if EMULATED_VM in self.workspace.environ:
            # The other folders have the programs of the developer's machine.
            path = path.partition(os.pathsep)[0]
        program = shutil.which(command[0], path=path)
        try:
            return tool_output([program, *command[1:]]) if program else ""
        except (OSError, subprocess.SubprocessError):
            return ""

    def _clock(self) -> str:
        """Return how wrong the clock is; empty if it is right, or if Google's time is unknown."""
        before = time.time()
        try:
            google = datetime.fromisoformat(self.metadata.time()).timestamp()
        except HttpError:
            return ""
        skew_s = max(before - google, google - time.time())
        return f"its clock is {skew_s:.0f} s from Google's" if skew_s > SKEW_MAX_S else ""

    def _disk(self) -> str:
        """Return why the disk cannot be written; empty if it can.

        A slow disk is no evidence: pip writes, too.
        """
        size_mib = 1 if EMULATED_VM in self.workspace.environ else DISK_MIB
        try:
            with tempfile.TemporaryFile(dir=self.workspace.work) as file:
                file.write(bytes(size_mib << 20))
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            if error.errno in DEVICE_ERRORS:
                return f"its disk cannot be written ({error.strerror})"
            self.workspace.log(f"The preflight could not write {size_mib} MiB: {error}.")
        return ""


def describe_gpus(expected: int, ecc: str, remapped_rows: str) -> str:
    """Return the fault that two lists of nvidia-smi show.

    Empty: no fault, or it is unknown (`[N/A]`, or a list without any GPU).
    """
    gpus = _rows(ecc)
    if gpus and len(gpus) < expected:
        return f"{len(gpus)} of {expected} GPUs answer"
    for what, rows in (
        ("uncorrected errors", gpus),
        ("replacements of rows pending, failed", _rows(remapped_rows)),
    ):
        for gpu, *values in rows:
            if any(_is_fault(value) for value in values):
                return f"the memory of GPU {gpu} has failed ({what}: {', '.join(values)})"
    return ""


def _is_fault(value: str) -> bool:
    """Return whether a value of nvidia-smi is `Yes` or a number above 0."""
    return value.lower() == "yes" or (value.isdecimal() and int(value) > 0)


def describe_xid(kernel_log: str) -> str:
    """Return what NVIDIA's driver has first logged about failed hardware since the boot; empty if
    it has logged nothing.
    """
    for text, xid in _XID.findall(kernel_log):
        if int(xid) in HARDWARE_XIDS:
            return str(text.strip(" ."))
    return ""


def _rows(listed: str) -> list[list[str]]:
    """Return the fields of each line of CSV, of which the first one is the GPU's index or bus id.

    Messages, which nvidia-smi prints to the same stream, are left out.
    """
    rows = []
    for line in listed.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) > 1 and re.fullmatch(r"[0-9a-fA-F:.]+", fields[0]):
            rows.append(fields)
    return rows
