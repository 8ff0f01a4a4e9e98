"""Whether a program is still: it prints nothing, moves no bytes, and uses hardly any processor
time.

`stall_watch.py` takes the samples and ends programs that are still for too long; here are only the
decisions, without clock or I/O. A program that waits for a peer, a lock or a file that never comes
is still; so is one that sleeps on purpose. One that computes, compiles, reads, writes or saves is
not still, however long it prints nothing. A program whose activity is unknown does not count as
still.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from trainmaster.agent.program.process_table import ProcessUse

SAMPLE_S = 10.0
"""Longest time between two samples."""
GAP_MAX_S = 2 * SAMPLE_S
"""How much of the time between two samples counts at most. A pause of the whole VM, as in a live
migration, is longer.
"""
CPU_SHARE = 0.02
"""A program that uses less than this share of one core is still.

Measured: distributed programs of PyTorch, JAX and TensorFlow that hang in a collective operation
use 0.2 to 0.6 %.
"""
WAKEUP_BYTES_S = 12.0
"""Bytes per second that runtimes write to themselves at most to wake up their threads.

Measured: at most 16 bytes in 10 s. The answer of a service that a program polls every 40 seconds
has more.
"""
NETWORK_NOISE_S = 16_384.0
"""Bytes per second that the agent, the guest agent and the heartbeats of runtimes send and receive,
with a margin.
"""
QUIET_FACTOR = 3
"""How many times its longest pause between two lines a program must be still."""


@dataclass(frozen=True)
class Sample:
    """A program at one moment. Times are seconds of the monotonic clock."""

    at: float
    printed_at: float
    """When it last printed; its start, if it has printed nothing."""
    processes: Mapping[int, ProcessUse]
    """By process id; empty: they are not known."""
    traffic: int | None = None
    """Bytes that the machine has sent and received; None: its traffic is not its own."""


def has_worked(before: Sample, after: Sample) -> bool:
    """Return whether the program has done anything between two samples, or may have."""
    span_s = after.at - before.at
    if not before.processes or before.processes.keys() != after.processes.keys():
        return True
    used = [(after.processes[pid], use) for pid, use in before.processes.items()]
    moved = sum(new.moved - old.moved for new, old in used)
    traffic = 0
    if before.traffic is not None and after.traffic is not None:
        traffic = after.traffic - before.traffic
    return (
        after.printed_at != before.printed_at
        or sum(new.cpu_s - old.cpu_s for new, old in used) >= CPU_SHARE * span_s
        or moved > WAKEUP_BYTES_S * span_s
        or traffic > NETWORK_NOISE_S * span_s
    )


class Stillness:
    """Measures how long one program has been still. Observe the first sample when it starts."""

    def __init__(self, least_s: float) -> None:
        """`least_s`: shortest time after which the program counts as still."""
        self._least_s = least_s
        self._last: Sample | None = None
        self._has_printed = False
        self._longest_quiet_s = 0.0
        """Longest pause between two lines so far. The time before the first line does not count."""
        self.still_s = 0.0
        """How long the program has done nothing until the last sample."""

    def observe(self, sample: Sample, is_device_busy: Callable[[], bool] = lambda: False) -> None:
        """Take the next sample, and update `still_s`.

        `is_device_busy` is called only if the program seems to be still.
        """
        last = self._last
        self._last = sample
        if last is None:
            return
        if sample.printed_at != last.printed_at:
            if self._has_printed:
                self._longest_quiet_s = max(
                    self._longest_quiet_s, sample.printed_at - last.printed_at
                )
            self._has_printed = True
        if has_worked(last, sample) or is_device_busy():
            self.still_s = 0.0
        else:
            self.still_s += min(sample.at - last.at, GAP_MAX_S)

    @property
    def limit_s(self) -> float:
        """How long the program must be still: longer for one that is often quiet, such as in
        evaluations.
        """
        return max(self._least_s, QUIET_FACTOR * self._longest_quiet_s)

    @property
    def is_still(self) -> bool:
        """Whether the program has done nothing for `limit_s`."""
        return self.still_s >= self.limit_s
