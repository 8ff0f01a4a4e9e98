"""Use of the GPUs, from one run of nvidia-smi for each sample of the utilization monitor."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainmaster.agent.program.devices import has_gpu, tool_output

PROGRAM = "nvidia-smi"
QUERY = "--query-gpu=index,utilization.gpu,memory.used,memory.total"
FORMAT = "--format=csv,noheader,nounits"
FAILURES_MAX = 3
"""Failures in a row after which GPUs are no longer measured.

Otherwise, processes would pile up while the driver hangs.
"""


@dataclass(frozen=True)
class GpuReading:
    """The use of one GPU."""

    index: int
    utilization: float | None
    """Share of the last moments in which a kernel ran, from 0 to 1.

    None: the GPU does not report it, as with MIG.
    """
    memory: float | None
    """Share of the GPU's memory in use, from 0 to 1."""


class Gpus:
    """The GPUs of this machine; none while it has no nvidia-smi, which some images install at their
    first boot.
    """

    def __init__(self, environ: Mapping[str, str], report_problem: Callable[[str], None]) -> None:
        self._search_path = environ.get("PATH")
        self._report_problem = report_problem
        self._failures = 0

    def read(self) -> list[GpuReading]:
        """Return a reading for each GPU; none if nvidia-smi fails."""
        if self._failures >= FAILURES_MAX:
            return []
        program = shutil.which(PROGRAM, path=self._search_path)
        if program is None:
            return []
        try:
            readings = parse_readings(tool_output([program, QUERY, FORMAT]))
        except (OSError, subprocess.SubprocessError, ValueError) as error:
            self._failures += 1
            if self._failures == FAILURES_MAX:
                self._report_problem(f"The use of the GPUs is not measured any more: {error}")
            return []
        self._failures = 0
        return readings

    def may_work(self) -> bool:
        """Return whether a GPU is in use, or its use cannot be read."""
        if not has_gpu():
            return False
        readings = self.read()
        return not readings or any(reading.utilization != 0 for reading in readings)


def parse_readings(output: str) -> list[GpuReading]:
    """Parse lines such as ``0, 97, 15000, 16160``. Raises ValueError."""
    readings = []
    for line in output.splitlines():
        if not line.strip():
            continue
        fields = [field.strip() for field in line.split(",")]
        if len(fields) != QUERY.count(",") + 1:
            raise ValueError(f"{PROGRAM} printed {line!r}")
        percent, used, total = (_number(field) for field in fields[1:])
        utilization = None if percent is None else min(percent / 100, 1.0)
        memory = None if used is None or not total else min(used / total, 1.0)
        readings.append(GpuReading(int(fields[0]), utilization, memory))
    return readings


def _number(field: str) -> float | None:
    """Return the number, or None for values such as ``[N/A]`` and ``[Not Supported]``."""
    return None if field.startswith("[") else float(field)
