"""The output of a program, and whether it was killed for lack of memory."""

from __future__ import annotations

import itertools

import pytest

from trainmaster.agent.program.output import LINE_MAX, Tail, whole_lines
from trainmaster.agent.program.process_table import out_of_memory, read_oom_kill_counts

KILLED_CHILDREN = {
    "torchrun": "Signal 9 (SIGKILL) received by PID 7",
    "data loader": "DataLoader worker (pid 7) is killed by signal: Killed. ",
    "data loader, found later": "DataLoader worker (pid(s) 7, 8) exited unexpectedly",
    "process pool": (
        "A process in the process pool was terminated abruptly while the future was running or"
        " pending."
    ),
    "joblib": (
        "A worker process managed by the executor was unexpectedly terminated. The exit codes of"
        " the workers are {SIGKILL(-9)}"
    ),
    "Ray": "The actor is dead because its worker process has died",
}


@pytest.mark.parametrize(
    ("returncode", "message", "before", "after", "expected"),
    [
        pytest.param(-9, "", {"a": 1}, {"a": 2}, True, id="killed while a counter grew"),
        pytest.param(137, "", {"a": 1}, {"a": 2}, True, id="shell whose child was killed"),
        pytest.param(247, "", {"a": 1}, {"a": 2}, True, id="sys.exit(-9), as for its child"),
        pytest.param(-9, "", {"a": 1}, {"a": 1}, False, id="killed by another process"),
        pytest.param(137, "", {}, {}, False, id="no counters"),
        pytest.param(-9, "", {}, {"a": 5}, False, id="counter that did not exist before"),
        pytest.param(1, "bad batch", {"a": 1}, {"a": 2}, False, id="another process was killed"),
        pytest.param(-15, "", {"a": 1}, {"a": 2}, False, id="signal other than SIGKILL"),
        pytest.param(
            1,
            "Signal 9 (SIGKILL) received by PID 7",
            {"a": 1},
            {"a": 1},
            False,
            id="not by the kernel",
        ),
        *(
            pytest.param(1, message, {"a": 1}, {"a": 2}, True, id=name)
            for name, message in KILLED_CHILDREN.items()
        ),
    ],
)
def test_out_of_memory_needs_a_kill_that_the_kernel_counted(
    returncode: int, message: str, before: dict[str, int], after: dict[str, int], expected: bool
) -> None:
    assert out_of_memory(returncode, message, before, after) is expected


def test_oom_kill_counters_are_readable() -> None:
    assert "/proc/vmstat" in read_oom_kill_counts()


def test_output_is_cut_at_line_ends_and_a_missing_one_is_added() -> None:
    data = iter([b"a", b"b\nc\nd", b"\n", b"e", b""])
    assert list(whole_lines(lambda _: next(data))) == [b"ab\nc\n", b"d\n", b"e\n"]


@pytest.mark.parametrize(
    ("step_s", "texts", "expected"),
    [
        pytest.param(
            4,
            [b"\r1%", b"\r2%", b"\r3%", b"\r4%", b"\n"],
            [(10, b"\r1%\r2%\r3%\n"), (16, b"\r4%\n")],
            id="bar that begins with a carriage return",
        ),
        pytest.param(
            4,
            [b"1%\r", b"2%\r", b"3%\r", b"4%\r", b"\n"],
            [(10, b"1%\r2%\r3%\r\n"), (16, b"4%\r\n")],
            id="bar that ends with a carriage return",
        ),
        pytest.param(
            25,
            [b"Load ", b"done\n", b"next"],
            [(10, b"Load \n"), (25, b"done\n"), (60, b"next\n")],
            id="line that is completed too late, and one that never is",
        ),
        pytest.param(
            25,
            [b"x\r", b"\ry\r\n"],
            [(10, b"x\r\n"), (25, b"\ry\r\n")],
            id="carriage returns on both sides of the limit",
        ),
        pytest.param(
            6,
            [b"a", b"b\nc", b"d\n"],
            [(6, b"ab\n"), (12, b"cd\n")],
            id="line ends before the limit",
        ),
    ],
)
def test_no_byte_waits_longer_than_ten_seconds_for_a_line_end(
    step_s: float, texts: list[bytes], expected: list[tuple[float, bytes]]
) -> None:
    """A text arrives every `step_s` seconds. `expected`: when each piece is printed, and the piece.

    The output is closed after 60 seconds.
    """
    now = 0.0
    arrivals = [(number * step_s, text) for number, text in enumerate(texts)]

    def read(timeout_s: float | None) -> bytes | None:
        nonlocal now
        if arrivals and (timeout_s is None or arrivals[0][0] <= now + timeout_s):
            now, data = arrivals.pop(0)
            return data
        now += timeout_s or 0.0
        return None if timeout_s is not None and now < 60 else b""

    assert [(now, piece) for piece in whole_lines(read, lambda: now)] == expected


def test_output_line_longer_than_the_limit_is_broken() -> None:
    data = itertools.chain(itertools.repeat(b"x" * 65536, 9), [b""])
    lines = list(whole_lines(lambda _: next(data)))
    assert [len(line) - 1 for line in lines] == [LINE_MAX, LINE_MAX, 65536]


def test_tail_keeps_the_end_of_any_bytes() -> None:
    tail = Tail(4)
    for piece in (b"abc", b"def", b"\xff" * 20, b"gh"):
        tail.add(piece)
    assert tail.text() == "\ufffd\ufffdgh"
