"""What a machine does outside the program's processes, for the watch of programs that hang."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainmaster.agent.control.stall_watch import MachineUse
from trainmaster.agent.program.devices import has_gpu
from trainmaster.agent.utilization.gpus import Gpus
from trainmaster.agent.utilization.machine import EMULATED_VM
from trainmaster.agent.utilization.network import read_traffic

if TYPE_CHECKING:
    from collections.abc import Mapping


class Surroundings(MachineUse):
    """A VM's network cards and GPUs."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._gpus = Gpus(environ, lambda _: None)

    def traffic(self) -> int | None:
        traffic = read_traffic()
        return traffic.received + traffic.sent

    def has_busy_gpu(self) -> bool:
        """Count a GPU as busy whose use cannot be read."""
        readings = self._gpus.read() if has_gpu() else []
        return has_gpu() and not (readings and all(reading.utilization == 0 for reading in readings))


def watched_machine(environ: Mapping[str, str]) -> MachineUse:
    """Return what to look at. The VMs of the local stack share one machine."""
    return MachineUse() if environ.get(EMULATED_VM) else Surroundings(environ)
