"""When a program is still, and that no healthy gang of a seeded model is taken for one
that hangs.
"""

from __future__ import annotations

import pytest

from tests.support.healthy_gangs import HANGS, KINDS, false_alarm, found_after_s, seeded
from trainmaster.agent.control.stillness import (
    NETWORK_NOISE_S,
    SAMPLE_S,
    WAKEUP_BYTES_S,
    Sample,
    Stillness,
    has_worked,
)
from trainmaster.agent.program.process_table import ProcessUse

LIMIT_S = 600
"""Shortest time without work after which a program is still."""
CPU_S, MOVED, TRAFFIC = 3.0, 10_000, 1_000_000
"""Use of the program before: CPU time, bytes of files and pipes, and bytes of the network."""
BEFORE = Sample(
    at=100.0,
    printed_at=50.0,
    processes={7: ProcessUse(CPU_S, MOVED), 8: ProcessUse(cpu_s=1.0, moved=0)},
    traffic=TRAFFIC,
)
WAKEUPS = int(WAKEUP_BYTES_S * SAMPLE_S)
"""Most bytes that runtimes write to wake up their threads, between two samples."""
NOISE = int(NETWORK_NOISE_S * SAMPLE_S)
"""Most bytes of the network that are not the program's, between two samples."""


def after(
    printed_at: float = 50.0,
    cpu_s: float = CPU_S,
    moved: int = MOVED,
    traffic: int | None = TRAFFIC,
) -> Sample:
    """Return the sample ten seconds after `BEFORE`, in which only the given values may differ."""
    return Sample(
        110.0, printed_at, {7: ProcessUse(cpu_s, moved), 8: ProcessUse(cpu_s=1.0, moved=0)}, traffic
    )


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        pytest.param(after(), False, id="nothing"),
        pytest.param(after(printed_at=109.0), True, id="output"),
        pytest.param(after(cpu_s=CPU_S + 0.019 * SAMPLE_S), False, id="1.9 % of a core"),
        pytest.param(after(cpu_s=CPU_S + 0.021 * SAMPLE_S), True, id="2.1 % of a core"),
        pytest.param(after(moved=MOVED + WAKEUPS), False, id="wake-ups"),
        pytest.param(after(moved=MOVED + WAKEUPS + 1), True, id="bytes"),
        pytest.param(after(traffic=TRAFFIC + NOISE), False, id="noise"),
        pytest.param(after(traffic=TRAFFIC + NOISE + 1), True, id="network"),
        pytest.param(after(traffic=None), False, id="shared network"),
        pytest.param(
            Sample(
                at=110.0,
                printed_at=50.0,
                processes={7: ProcessUse(CPU_S, MOVED)},
                traffic=TRAFFIC,
            ),
            True,
            id="a process ended",
        ),
        pytest.param(
            Sample(at=110.0, printed_at=50.0, processes={}, traffic=TRAFFIC), True, id="unknown"
        ),
    ],
)
def test_program_has_worked_if_it_printed_computed_or_moved_bytes_or_nobody_knows(
    sample: Sample, *, expected: bool
) -> None:
    assert has_worked(BEFORE, sample) is expected
    assert has_worked(Sample(at=100.0, printed_at=50.0, processes={}), sample) is True


def still_after(
    *printed_at: float, step_s: float = SAMPLE_S, is_device_busy: bool = False
) -> Stillness:
    """Return what is known of a program that printed at these times, and then did nothing for a
    minute more than the limit.
    """
    stillness, end = Stillness(LIMIT_S), printed_at[-1] + LIMIT_S + 60
    for number in range(int(end / step_s) + 1):
        at = number * step_s
        printed = max((time for time in printed_at if time <= at), default=0.0)
        stillness.observe(
            Sample(at, printed, {7: ProcessUse(cpu_s=1.0, moved=0)}), lambda: is_device_busy
        )
    return stillness


@pytest.mark.parametrize(
    ("printed_at", "is_still", "limit_s"),
    [
        ((0.0,), True, LIMIT_S),
        # The time before the first output says nothing about the program.
        ((400.0,), True, LIMIT_S),
        ((400.0, 500.0), True, LIMIT_S),
        ((400.0, 600.0, 830.0), False, 3 * (830 - 600)),
    ],
)
def test_program_that_was_often_quiet_may_be_still_for_three_times_as_long(
    printed_at: tuple[float, ...], limit_s: float, *, is_still: bool
) -> None:
    stillness = still_after(*printed_at)
    assert (stillness.limit_s, stillness.is_still) == (limit_s, is_still)


def test_program_is_not_still_while_a_gpu_works_or_because_its_vm_was_paused() -> None:
    assert not still_after(0.0, is_device_busy=True).is_still
    # Samples that are minutes apart count as short ones: the whole VM was paused between them.
    assert still_after(0.0, step_s=330.0).still_s == 40


@pytest.mark.parametrize("kind", KINDS)
def test_no_healthy_gang_is_taken_for_one_that_hangs(kind: str) -> None:
    alarms = [seed for seed in range(15) if false_alarm(kind, seeded(kind, seed))]
    assert not alarms


@pytest.mark.parametrize("hang", HANGS)
def test_each_gang_that_hangs_is_found_at_its_limit(hang: str) -> None:
    for seed in range(10):
        found_s, limit_s = found_after_s(hang, seeded(hang, seed))
        assert limit_s <= found_s <= limit_s + 80, seed
