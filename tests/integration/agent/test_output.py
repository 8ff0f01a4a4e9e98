"""The output of a program, and whether it was killed for lack of memory."""

from __future__ import annotations

import itertools

import pytest

from trainmaster.agent.program.output import LINE_MAX, Tail, whole_lines
from trainmaster.agent.program.process_table import out_of_memory, read_oom_kill_counts


@pytest.mark.parametrize(
    ("returncode", "before", "after", "expected"),
    [
        pytest.param(-9, {"a": 1}, {"a": 2}, True, id="killed while a counter grew"),
        pytest.param(137, {"a": 1}, {"a": 2}, True, id="launcher whose child was killed"),
        pytest.param(-9, {"a": 1}, {"a": 1}, False, id="killed by another process"),
        pytest.param(137, {}, {}, False, id="no counters"),
        pytest.param(-9, {}, {"a": 5}, False, id="counter that did not exist before"),
        pytest.param(1, {"a": 1}, {"a": 2}, False, id="another process was killed"),
        pytest.param(-15, {"a": 1}, {"a": 2}, False, id="signal other than SIGKILL"),
    ],
)
def test_out_of_memory_needs_a_kill_that_the_kernel_counted(
    returncode: int, before: dict[str, int], after: dict[str, int], expected: bool
) -> None:
    assert out_of_memory(returncode, before, after) is expected


def test_oom_kill_counters_are_readable() -> None:
    assert "/proc/vmstat" in read_oom_kill_counts()


def test_output_is_cut_at_line_ends_and_a_missing_one_is_added() -> None:
    data = iter([b"a", b"b\nc\nd", b"\n", b"e", b""])
    assert list(whole_lines(lambda: next(data))) == [b"ab\nc\n", b"d\n", b"e\n"]


def test_output_line_longer_than_the_limit_is_broken() -> None:
    data = itertools.chain(itertools.repeat(b"x" * 65536, 9), [b""])
    lines = list(whole_lines(lambda: next(data)))
    assert [len(line) - 1 for line in lines] == [LINE_MAX, LINE_MAX, 65536]


def test_tail_keeps_the_end_of_any_bytes() -> None:
    tail = Tail(4)
    for piece in (b"abc", b"def", b"\xff" * 20, b"gh"):
        tail.add(piece)
    assert tail.text() == "\ufffd\ufffdgh"
