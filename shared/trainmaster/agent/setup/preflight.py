"""The preflight: whether the machine has a fault that would fail the program. What is unknown is no evidence.

    GPUs        fewer than the machine type has, or memory that has failed
    kernel log  an Xid of `HARDWARE_XIDS`
    clock       more than `SKEW_MAX_S` from Google's         these two only before the first start on this VM
    disk        an error of the device while `DISK_MIB` are written

Each check must find the fault twice. They run beside the rest of the set-up; what takes longer than `LIMIT_S` has found
nothing.
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
from datetime import datetime
from typing import TYPE_CHECKING

from trainmaster.agent.google_http.http_call import HttpError
from trainmaster.agent.program.tool_output import tool_output
from trainmaster.agent.setup.engine_installation import EMULATED
from trainmaster.agent.setup.setup_errors import new_setup_error

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainmaster.agent.google_http.metadata_server import MetadataServer
    from trainmaster.agent.model.results import SetupFailure
    from trainmaster.agent.model.vm_config import VmConfig
    from trainmaster.agent.workspace import Workspace

UNFIT = "UnfitMachine"
"""Type of the error. Its cause is ``setup``, which control planes of all releases know."""
LIMIT_S = 10.0
AGAIN_S = 3.0  # between two readings: a driver may be starting, and NTP may be setting the clock
SKEW_MAX_S = 30.0
DISK_MIB = 64
HARDWARE_XIDS = {
    48: "uncorrectable memory error",
    64: "a failed row of memory cannot be replaced",
    79: "the GPU has fallen off the bus",
    95: "uncontained memory error",
    140: "unrecovered memory error",
    143: "the GPU cannot be initialized",
}
"""Xids after which NVIDIA resets the GPU or its machine, and that no program causes. Of 74 (NVLink) some are harmless,
94 (contained) needs a restart of the program only, and 119 and 120 may come from the driver. Source: NVIDIA, "Analyzing
Xid Errors with the Xid Catalog", columns "Resolution Bucket"."""
DEVICE_ERRORS = (errno.EIO, errno.EROFS, errno.ETIMEDOUT, errno.ENODEV, errno.ENXIO, errno.EUCLEAN)
"""Errors of a write that say that the disk, or its file system, has failed. After one, ext4 becomes read-only."""
SMI = ("nvidia-smi", "--format=csv,noheader,nounits")
ECC = (*SMI, "--query-gpu=index,ecc.errors.uncorrected.volatile.total")
ROWS = (*SMI, "--query-remapped-rows=gpu_bus_id,remapped_rows.pending,remapped_rows.failure")
_XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:.]+)\): (\d+)\b")


class Preflight:
    def __init__(
        self, config: VmConfig, workspace: Workspace, metadata: MetadataServer, pause: Callable[[float], object]
    ) -> None:
        self._config = config
        self._workspace = workspace
        self._metadata = metadata
        self._pause = pause
        self._is_emulated = EMULATED in workspace.environ
        self.finding = ""
        """What the last preflight has found; empty: nothing."""

    def start(self, *, is_first: bool) -> Callable[[], SetupFailure | None]:
        """Start the checks. Return a function that waits for them, and returns why the VM cannot run the program.

        `is_first`: no program has run on this VM yet.
        """
        found: list[str] = []
        deadline, mode = time.monotonic() + LIMIT_S, self._config.preflight
        checks = [self._gpus, lambda: describe_xid(self._output(("dmesg",)))] if self._config.gpus else []
        checks += [self._clock, self._disk] if is_first else []
        checks = [] if mode == "off" else checks
        threads = [threading.Thread(target=self._examine, args=(check, found), daemon=True) for check in checks]
        for thread in threads:
            thread.start()

        def finish() -> SetupFailure | None:
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))
            self.finding = "; ".join(found)
            if self.finding:
                self._workspace.log(f"This machine failed the preflight: {self.finding}.")
            is_unfit = self.finding and mode == "on"
            return new_setup_error(UNFIT, self.finding, transient=True).failure if is_unfit else None

        return finish

    def _examine(self, check: Callable[[], str], found: list[str]) -> None:
        """Make one check, in its own thread."""
        if check():
            self._pause(AGAIN_S)
            found += filter(None, [check()])

    def _gpus(self) -> str:
        return describe_gpus(self._config.gpus, self._output(ECC), self._output(ROWS))

    def _output(self, command: tuple[str, ...]) -> str:
        """Return what a program prints; empty if it is missing or fails."""
        path = self._workspace.environ.get("PATH", os.defpath)
        # On the local stack, the other folders have the programs of the developer's machine.
        program = shutil.which(command[0], path=path.partition(os.pathsep)[0] if self._is_emulated else path)
        try:
            return tool_output([program, *command[1:]]) if program else ""
        except (OSError, subprocess.SubprocessError):
            return ""

    def _clock(self) -> str:
        before = time.time()
        try:
            google = datetime.fromisoformat(self._metadata.time()).timestamp()
        except HttpError:
            return ""
        skew_s = max(before - google, google - time.time())
        return f"its clock is {skew_s:.0f} s from Google's" if skew_s > SKEW_MAX_S else ""

    def _disk(self) -> str:
        """A slow disk is no evidence: pip writes, too."""
        block = os.urandom(1 << 20)
        try:
            with tempfile.TemporaryFile(dir=self._workspace.work, buffering=0) as file:
                for _ in range(1 if self._is_emulated else DISK_MIB):
                    file.write(block)
                os.fsync(file.fileno())
        except OSError as error:
            if error.errno in DEVICE_ERRORS:
                return f"its disk cannot be written ({error.strerror})"
            self._workspace.log(f"The preflight could not write {DISK_MIB} MiB: {error}.")
        return ""


def describe_gpus(expected: int, ecc: str, remapped_rows: str) -> str:
    """Return the fault that lists of nvidia-smi show; empty: none, or unknown (`[N/A]`, or a list without any GPU)."""
    gpus = _rows(ecc)
    if gpus and len(gpus) < expected:
        return f"{len(gpus)} of {expected} GPUs answer"
    for gpu, *values in (*gpus, *_rows(remapped_rows)):
        if any(value.lower() == "yes" or (value.isdecimal() and int(value)) for value in values):
            what = "uncorrected errors" if len(values) == 1 else "replacements of rows pending, failed"
            return f"the memory of GPU {gpu} has failed ({what}: {', '.join(values)})"
    return ""


def describe_xid(kernel_log: str) -> str:
    """Return the first fault of the hardware that NVIDIA's driver has logged since the boot; empty: none."""
    for gpu, xid in _XID.findall(kernel_log):
        if int(xid) in HARDWARE_XIDS:
            return f"Xid {xid} of GPU {gpu}: {HARDWARE_XIDS[int(xid)]}"
    return ""


def _rows(listed: str) -> list[list[str]]:
    """Return the fields of each line of CSV. Messages, which nvidia-smi prints to the same stream, are left out."""
    lines = ([field.strip() for field in line.split(",")] for line in listed.splitlines())
    return [fields for fields in lines if len(fields) > 1 and re.fullmatch(r"[0-9a-fA-F:.]+", fields[0])]
