"""Finding the Python error that a program's output ends with."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from trainmaster.agent.program.traceback_reader import MESSAGE_CHARS
from trainmaster.agent.program.tracebacks import parse_traceback

TB = "Traceback (most recent call last):\n"
MAIN = (
    '  File "/home/u/.local/lib/python3.11/site-packages/trainer/task.py", line 41, in main\n   '
    " fit()\n    ^^^^^\n"
)
INNER = (
    '  File "/usr/lib/python3/dist-packages/keras/engine/training.py", line 7, in fit\n    x()\n'
)
FRAME = "training.py:7 in fit"
# Of tqdm, which is open.
BAR = "\r  4%|4    | 4/100 [00:00<00:14,  6.6it/s]\r  5%|5    | 5/100 [00:00<00:14,  6.6it/s]"
NO_PACKAGE = (
    "/usr/bin/python3.11: Error while finding module specification for 'a.b' "
    "(ModuleNotFoundError: No module named 'a')\n"
)

OWN = '  File "/home/u/run/train.py", line 3\n'
CAPTURED = (
    "subprocess.CalledProcessError: Command '['python', '-m', 'prepare.py']' returned non-zero exit"
    " status 1.\n"
)

# The output of a program → the type, the message and the frame of its error, which is None where
# another case has the same frame; None: the output ends with no error.
TRACEBACKS = [
    ("", None),
    ("step 1\nstep 2\n", None),
    (
        TB + MAIN + "ValueError: bad shape\n",
        ("ValueError", "bad shape", "trainer/task.py:41 in main"),
    ),
    (TB + MAIN + INNER + "AssertionError\n", ("AssertionError", "", f"engine/{FRAME}")),
    (
        TB + MAIN + "tf.errors.NotFoundError: no gs://b\n",
        ("tf.errors.NotFoundError", "no gs://b", None),
    ),
    (TB + MAIN + "__main__.main.<locals>.Odd: x\n", ("__main__.main.<locals>.Odd", "x", None)),
    (
        TB
        + INNER
        + "RuntimeError: DataLoader worker (pid 216) is killed by signal: Segmentation fault. \n\n"
        + "The above exception was the direct cause of the following exception:\n\n"
        + TB
        + MAIN
        + "RuntimeError: DataLoader worker (pid(s) 216) exited unexpectedly\n",
        (
            "RuntimeError",
            "DataLoader worker (pid 216) is killed by signal: Segmentation fault. ",
            "trainer/task.py:41 in main",
        ),
    ),
    (TB + MAIN + "ValueError: one\ntwo\n  three\n", ("ValueError", "one\ntwo\n  three", None)),
    (
        TB
        + MAIN
        + "KeyError: 'a'\n\n"
        + "During handling of the above exception, another exception occurred:\n\n"
        + TB
        + INNER
        + "OSError: b\n",
        ("OSError", "b", f"engine/{FRAME}"),
    ),
    (
        TB
        + MAIN
        + "KeyError: 'a'\n\n"
        + "The above exception was the direct cause of the following exception:\n\n"
        + TB
        + INNER
        + "RuntimeError: c\n",
        ("RuntimeError", "c", f"engine/{FRAME}"),
    ),
    (TB + MAIN + "ValueError: handled\nretrying\n" + "step\n" * 300, None),
    (
        TB + MAIN + "ValueError: old\nok\n" + TB + INNER + "TypeError: new\n",
        ("TypeError", "new", f"engine/{FRAME}"),
    ),
    (
        TB
        + MAIN
        + "ValueError: x\nException ignored in: <function F.__del__ at 0x7f>\n"
        + TB
        + INNER
        + "TypeError: late\n",
        ("ValueError", "x", "trainer/task.py:41 in main"),
    ),
    (
        TB + MAIN + "ValueError: x\n2026-11-21 03:00:00.1: W tensorflow/core: y\n",
        ("ValueError", "x", None),
    ),
    (
        TB + MAIN + "ValueError: x\nI0000 00:00:17.05 4531 port.cc:153] y\n",
        ("ValueError", "x", None),
    ),
    (
        TB + MAIN + "WARNING: All log messages before\nepoch: 3\n" + INNER + "ValueError: x\n",
        ("ValueError", "x", f"engine/{FRAME}"),
    ),
    (
        TB + MAIN + "  [Previous line repeated 996 more times]\nRecursionError: deep\n",
        ("RecursionError", "deep", None),
    ),
    (TB + MAIN + "ValueError: crlf\n".replace("\n", "\r\n"), ("ValueError", "crlf", None)),
    (TB + MAIN, None),
    (
        "".join(
            f"[rank0]: {line}\n" for line in (TB + MAIN + INNER + "ValueError: r\n").splitlines()
        ),
        ("ValueError", "r", f"engine/{FRAME}"),
    ),
    (
        "  + Exception Group "
        + TB
        + "".join(f"  | {line}\n" for line in MAIN.splitlines())
        + "  | ExceptionGroup: many (2 sub-exceptions)\n"
        + "  +-+---------------- 1 ----------------\n"
        + "    | ValueError: a\n"
        + "    +------------------------------------\n",
        ("ExceptionGroup", "many (2 sub-exceptions)", "trainer/task.py:41 in main"),
    ),
    (
        "".join(
            f"      {line}\n"
            for line in (
                TB + '  File "<string>", line 2, in <module>\n' + "RuntimeError: no compiler\n"
            ).splitlines()
        )
        + "      [end of output]\n",
        ("RuntimeError", "no compiler", "<string>:2 in <module>"),
    ),
    (
        TB + '  File "<frozen runpy>", line 189, in _run_module_as_main\n'
        '  File "/a/trainer/task.py", line 3\n    def f(:\n'
        "          ^\nSyntaxError: invalid syntax\n",
        ("SyntaxError", "invalid syntax", "trainer/task.py:3"),
    ),
    (
        (
            '  File "/a/trainer/task.py", line 3\n    def f(:\n'
            "          ^\nSyntaxError: invalid syntax\n"
        ),
        ("SyntaxError", "invalid syntax", "trainer/task.py:3"),
    ),
    (
        "/usr/bin/python3: No module named trainer.tsk\n",
        ("ModuleNotFoundError", "No module named trainer.tsk", ""),
    ),
    (NO_PACKAGE, ("ModuleNotFoundError", "No module named 'a'", "")),
    ("python3: can't open file 'x'\n", None),
    ("\ufffd\x00\n" + TB + MAIN + "ValueError: \ufffd\n", ("ValueError", "\ufffd", None)),
    (" " * 100_000 + TB + "(" * 50_000, None),
    (
        BAR + TB + MAIN + "ValueError: x\n" + BAR + "\n",
        ("ValueError", "x", "trainer/task.py:41 in main"),
    ),
    (
        BAR + "\r" + TB + MAIN + "ValueError: x\n" + BAR,
        ("ValueError", "x", "trainer/task.py:41 in main"),
    ),
    (
        BAR
        + "".join(f"[rank0]: {line}\n" for line in (TB + MAIN + "ValueError: x\n").splitlines())
        + BAR
        + "\n",
        ("ValueError", "x", "trainer/task.py:41 in main"),
    ),
    (
        BAR + "F1126 19:09:37.536597   30172 x.h:80] the service has ended\n",
        ("Aborted", "the service has ended", ""),
    ),
    ("  traceback : " + TB + MAIN + "ValueError: x\n", None),
    (
        "python: solver.cc:41: int solve(int): Assertion `n > 0' failed.\n",
        ("Aborted", "python: solver.cc:41: int solve(int): Assertion `n > 0' failed", ""),
    ),
    ("free(): invalid pointer\n", ("Aborted", "free(): invalid pointer", "")),
    (
        TB + OWN + CAPTURED,
        ("subprocess.CalledProcessError", CAPTURED.partition(": ")[2].strip(), "run/train.py:3"),
    ),
    (TB + OWN + CAPTURED.replace("'prepare.py'", "'torch.distributed.run', 'prepare.py'"), None),
    (TB + OWN.replace("run/train.py", "bin/accelerate") + CAPTURED, None),
]


@pytest.mark.parametrize(("output", "expected"), TRACEBACKS, ids=range(len(TRACEBACKS)))
def test_traceback_is_parsed_from_recorded_output(
    output: str, expected: tuple[str, str, str | None] | None
) -> None:
    error = parse_traceback(output)
    if expected is None:
        assert error is None
    else:
        assert error is not None
        assert (error["type"], error["message"]) == expected[:2]
        assert expected[2] in (None, error["frame"])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1/0", ("ZeroDivisionError", "division by zero")),
        ("import no_such_thing", ("ModuleNotFoundError", "No module named 'no_such_thing'")),
        (
            "try:\n  1/0\nexcept Exception as e:\n  raise KeyError('a\\nb') from e",
            ("KeyError", "'a\\nb'"),
        ),
        ("def f(:", ("SyntaxError", "invalid syntax")),
        ("raise SystemExit(3)", None),
    ],
)
def test_traceback_is_parsed_from_this_pythons_output(
    tmp_path: Path, source: str, expected: tuple[str, str] | None
) -> None:
    (tmp_path / "task.py").write_text(source)
    done = subprocess.run(
        [sys.executable, "-m", "task"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    error = parse_traceback(done.stderr)
    assert (error and (error["type"], error["message"])) == expected
    if error:
        assert error["frame"].startswith(f"{tmp_path.name}/task.py:")


def test_own_frame_is_the_innermost_frame_of_the_program_itself() -> None:
    error = parse_traceback(TB + MAIN + INNER + "ValueError: x\n", "trainer")
    assert error is not None
    assert (error["frame"], error["own_frame"]) == (f"engine/{FRAME}", "trainer/task.py:41 in main")


@pytest.mark.parametrize(
    ("path", "package", "expected"),
    [
        ("/app/train.py", "", True),  # of a container, which is not installed
        ("/app/train.py", "trainer", True),
        ("/venv/lib/python3.11/site-packages/trainer/task.py", "trainer", True),
        ("/venv/lib/python3.11/site-packages/task.py", "task", True),
        ("/venv/lib/python3.11/site-packages/trainer_tools/x.py", "trainer", False),
        ("/venv/lib/python3.11/site-packages/keras/x.py", "", False),
        ("/usr/lib/python3/dist-packages/numpy/core.py", "trainer", False),
        ("/usr/lib/python3.11/threading.py", "trainer", False),
        ("pandas/_libs/parsers.pyx", "", False),
        ("<frozen importlib._bootstrap>", "trainer", False),
        # Another name in each process.
        (
            "/tmp/__autograph_generated_file1x2y.py",
            "trainer",
            False,
        ),
    ],
)
def test_frame_is_own_unless_it_belongs_to_python_or_a_library(
    path: str, package: str, *, expected: bool
) -> None:
    error = parse_traceback(f'{TB}  File "{path}", line 3, in f\n    g()\nValueError: x\n', package)
    assert error is not None
    assert bool(error["own_frame"]) is expected


def test_causes_are_the_types_of_the_chained_exceptions(tmp_path: Path) -> None:
    source = """
        def f():
            try:
                {}["a"]
            except KeyError as error:
                raise OSError("b") from error
        try:
            f()
        except OSError:
            raise ValueError("c")
    """
    (tmp_path / "task.py").write_text(textwrap.dedent(source))
    done = subprocess.run(
        [sys.executable, "-m", "task"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    error = parse_traceback(done.stderr)
    assert error is not None
    assert (error["type"], error["causes"]) == ("ValueError", ["OSError", "KeyError"])


def test_earlier_traceback_that_was_handled_is_not_a_cause() -> None:
    error = parse_traceback(
        TB + MAIN + "OSError: old\nretrying\n" + TB + INNER + "TypeError: new\n"
    )
    assert error is not None
    assert "causes" not in error


def test_traceback_with_a_huge_message_is_truncated() -> None:
    error = parse_traceback(TB + MAIN + "ValueError: " + "x" * 100_000)
    assert error is not None
    assert len(error["message"]) == MESSAGE_CHARS


def test_long_message_keeps_its_end_which_says_why_an_operation_failed() -> None:
    frames = "".join(
        f'  File "/usr/lib/python3/dist-packages/keras/{n}.py", line {n}, in fit\n\n'
        for n in range(30)
    )
    cause = (
        "Collective ops is aborted by: … (stopped sending"
        " heartbeats):\n/job:worker/replica:0/task:0"
    )
    origin = "Graph execution error:\n\nDetected at node R defined at (most recent call last):\n"
    error = parse_traceback(TB + MAIN + f"UnavailableError: {origin}{frames}{cause}")
    assert error is not None
    assert error["message"].startswith(origin)
    assert error["message"].endswith(cause)
    assert len(error["message"]) == MESSAGE_CHARS
