"""When a program is still, and that no healthy gang of a seeded model is taken for one
that hangs.
"""

from __future__ import annotations

import pytest

from tests.support.healthy_gangs import HANGS, KINDS, false_alarm, found_after_s, seeded
from trainmaster.agent.control.stillness import Sample, Stillness, has_worked
from trainmaster.agent.program.process_table import ProcessUse

BEFORE = Sample(
    at=100.0,
    printed_at=50.0,
    processes={7: ProcessUse(cpu_s=3.0, moved=10_000), 8: ProcessUse(cpu_s=1.0, moved=0)},
    traffic=1_000_000,
)


def after(
    printed_at: float = 50.0,
    cpu_s: float = 3.0,
    moved: int = 10_000,
    traffic: int | None = 1_000_000,
) -> Sample:
    return Sample(
        110.0, printed_at, {7: ProcessUse(cpu_s, moved), 8: ProcessUse(cpu_s=1.0, moved=0)}, traffic
    )


@pytest.mark.parametrize(
    ("sample", "expected"),
    [
        pytest.param(after(), False, id="nothing"),
        pytest.param(after(printed_at=109.0), True, id="output"),
        pytest.param(after(cpu_s=3.19), False, id="2 % of a core"),
        pytest.param(after(cpu_s=3.2), True, id="more"),
        pytest.param(after(moved=10_120), False, id="wake-ups"),
        pytest.param(after(moved=10_121), True, id="bytes"),
        pytest.param(after(traffic=1_163_840), False, id="noise"),
        pytest.param(after(traffic=1_163_841), True, id="network"),
        pytest.param(after(traffic=None), False, id="shared network"),
        pytest.param(
            Sample(
                at=110.0,
                printed_at=50.0,
                processes={7: ProcessUse(cpu_s=3.0, moved=10_000)},
                traffic=1_000_000,
            ),
            True,
            id="a process ended",
        ),
        pytest.param(
            Sample(at=110.0, printed_at=50.0, processes={}, traffic=1_000_000), True, id="unknown"
        ),
    ],
)
def test_program_has_worked_if_it_printed_computed_or_moved_bytes_or_nobody_knows(
    sample: Sample, *, expected: bool
) -> None:
    assert has_worked(BEFORE, sample) is expected
    assert has_worked(Sample(at=100.0, printed_at=50.0, processes={}), sample) is True


def still_after(
    *printed_at: float, step_s: float = 10.0, is_device_busy: bool = False
) -> Stillness:
    """Return what is known after samples of a program that only printed at these times, and 660 s
    more.
    """
    stillness, end = Stillness(600), printed_at[-1] + 660
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
        ((0.0,), True, 600),
        ((400.0,), True, 600),  # the time before the first output says nothing about the program
        ((400.0, 500.0), True, 600),
        ((400.0, 600.0, 830.0), False, 690),
    ],
)
def test_program_that_was_often_quiet_may_be_still_for_three_times_as_long(
    printed_at: tuple[float, ...], limit_s: float, *, is_still: bool
) -> None:
    stillness = still_after(*printed_at)
    assert (stillness.limit_s, stillness.is_still) == (limit_s, is_still)


def test_program_is_not_still_while_a_gpu_works_or_because_its_vm_was_paused() -> None:
    assert not still_after(0.0, is_device_busy=True).is_still
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
