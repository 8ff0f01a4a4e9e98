"""From samples to the values of one report: means of the samples, and counters since the start."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainmaster.agent.utilization.gpus import GpuReading
from trainmaster.agent.utilization.machine import MachineReading
from trainmaster.agent.utilization.network import Traffic


@dataclass(frozen=True)
class Sample:
    """One reading of everything that is measured."""

    at: float
    """Seconds of a clock that never goes back."""
    machine: MachineReading
    gpus: Sequence[GpuReading]
    traffic: Traffic | None
    """None where the machine's traffic is not its own, as on the local stack."""


@dataclass(frozen=True)
class Report:
    """Values of one interval. Shares are from 0 to 1."""

    cpu: float
    """CPU time in use, of all CPUs together."""
    memory: float
    """Memory in use."""
    gpus: Mapping[int, float]
    """Use by the index of the GPU."""
    gpu_memory: Mapping[int, float]
    """Memory in use by the index of the GPU."""
    received: int | None
    """Bytes since the first sample; None: unknown."""
    sent: int | None
    """Bytes since the first sample; None: unknown."""


class Averages:
    """Collects the samples of one interval after the other."""

    def __init__(self, first: Sample) -> None:
        """`first` is where the first interval begins."""
        self._origin = first.traffic
        self._start = first
        self._samples: list[Sample] = []

    def add(self, sample: Sample) -> None:
        """Add a sample, taken after all others, to the current interval."""
        self._samples.append(sample)

    def take(self) -> Report | None:
        """Return the report of the samples since the last call, and begin a new interval; None
        without samples.
        """
        if not self._samples or self._samples[-1].at <= self._start.at:
            return None
        start = self._start
        samples = self._samples
        last = samples[-1]
        self._start = last
        self._samples = []
        used_s = last.machine.cpu_s - start.machine.cpu_s
        available_s = (last.at - start.at) * last.machine.cpus
        gpus: list[GpuReading] = []
        for sample in samples:
            gpus.extend(sample.gpus)
        received, sent = self._traffic(last)
        return Report(
            cpu=min(max(used_s / available_s, 0.0), 1.0),
            memory=_mean([sample.machine.memory for sample in samples]),
            gpus=_means((gpu.index, gpu.utilization) for gpu in gpus),
            gpu_memory=_means((gpu.index, gpu.memory) for gpu in gpus),
            received=received,
            sent=sent,
        )

    def _traffic(self, last: Sample) -> tuple[int | None, int | None]:
        """Return the bytes received and sent since the first sample; None for an unknown number."""
        if self._origin is None or last.traffic is None:
            return None, None
        received = last.traffic.received - self._origin.received
        sent = last.traffic.sent - self._origin.sent
        # A network card that was removed takes its counters with it, but a cumulative metric must
        # not go back.
        return (
            received if received >= 0 else None,
            sent if sent >= 0 else None,
        )


def _means(values: Iterable[tuple[int, float | None]]) -> dict[int, float]:
    """Return the mean of the known values of each GPU, by its index."""
    by_index = defaultdict(list)
    for index, value in values:
        if value is not None:
            by_index[index].append(value)
    return {index: _mean(readings) for index, readings in sorted(by_index.items())}


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
