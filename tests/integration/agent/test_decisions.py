"""The agent's pure parts, and its calls to Google's real endpoints."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shared.agent.control.vm_config import Key, Vm, supersedes
from shared.agent.http.calls import HttpError, backoffs
from shared.agent.http.metadata_server import Google, Metadata
from shared.agent.program.environment import command_of, environment_of
from shared.agent.program.output import LINE_MAX, Tail, whole_lines
from shared.agent.program.process_table import oom_kills, out_of_memory
from shared.agent.program.tracebacks import MESSAGE_CHARS, parse_traceback

from .support.cloud import Cloud
from .support.vm import FIRST, replica_id

TB = "Traceback (most recent call last):\n"
MAIN = '  File "/home/u/.local/lib/python3.11/site-packages/trainer/task.py", line 41, in main\n    fit()\n    ^^^^^\n'
INNER = '  File "/usr/lib/python3/dist-packages/keras/engine/training.py", line 7, in fit\n    x()\n'
FRAME = "training.py:7 in fit"
NO_PACKAGE = (
    "/usr/bin/python3.11: Error while finding module specification for 'a.b' "
    "(ModuleNotFoundError: No module named 'a')\n"
)

TRACEBACKS = [
    ("", None),
    ("step 1\nstep 2\n", None),
    (TB + MAIN + "ValueError: bad shape\n", ("ValueError", "bad shape", "trainer/task.py:41 in main")),
    (TB + MAIN + INNER + "AssertionError\n", ("AssertionError", "", f"engine/{FRAME}")),
    (TB + MAIN + "tf.errors.NotFoundError: no gs://b\n", ("tf.errors.NotFoundError", "no gs://b", None)),
    (TB + MAIN + "__main__.main.<locals>.Odd: x\n", ("__main__.main.<locals>.Odd", "x", None)),
    (TB + MAIN + "ValueError: one\ntwo\n  three\n", ("ValueError", "one\ntwo\n  three", None)),
    (TB + MAIN + "KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\n"
     + TB + INNER + "OSError: b\n", ("OSError", "b", f"engine/{FRAME}")),
    (TB + MAIN + "KeyError: 'a'\n\nThe above exception was the direct cause of the following exception:\n\n"
     + TB + INNER + "RuntimeError: c\n", ("RuntimeError", "c", f"engine/{FRAME}")),
    (TB + MAIN + "ValueError: handled\nretrying\n" + "step\n" * 300, None),
    (TB + MAIN + "ValueError: old\nok\n" + TB + INNER + "TypeError: new\n", ("TypeError", "new", f"engine/{FRAME}")),
    (TB + MAIN + "ValueError: x\nException ignored in: <function F.__del__ at 0x7f>\n" + TB + INNER
     + "TypeError: late\n", ("ValueError", "x", "trainer/task.py:41 in main")),
    (TB + MAIN + "ValueError: x\n2026-11-21 03:00:00.1: W tensorflow/core: y\n", ("ValueError", "x", None)),
    (TB + MAIN + "ValueError: x\nI0000 00:00:17.05 4531 port.cc:153] y\n", ("ValueError", "x", None)),
    (TB + MAIN + "WARNING: All log messages before\nepoch: 3\n" + INNER + "ValueError: x\n",
     ("ValueError", "x", f"engine/{FRAME}")),
    (TB + MAIN + "  [Previous line repeated 996 more times]\nRecursionError: deep\n", ("RecursionError", "deep", None)),
    (TB + MAIN + "ValueError: crlf\n".replace("\n", "\r\n"), ("ValueError", "crlf", None)),
    (TB + MAIN, None),
    ("".join(f"[rank0]: {line}\n" for line in (TB + MAIN + INNER + "ValueError: r\n").splitlines()),
     ("ValueError", "r", f"engine/{FRAME}")),
    ("  + Exception Group " + TB + "".join(f"  | {line}\n" for line in MAIN.splitlines())
     + "  | ExceptionGroup: many (2 sub-exceptions)\n  +-+---------------- 1 ----------------\n    | ValueError: a\n"
     + "    +------------------------------------\n",
     ("ExceptionGroup", "many (2 sub-exceptions)", "trainer/task.py:41 in main")),
    ("".join(f"      {line}\n" for line in (TB + '  File "<string>", line 2, in <module>\n'
     + "RuntimeError: no compiler\n").splitlines()) + "      [end of output]\n",
     ("RuntimeError", "no compiler", "<string>:2 in <module>")),
    (TB + '  File "<frozen runpy>", line 189, in _run_module_as_main\n'
     '  File "/a/trainer/task.py", line 3\n    def f(:\n'
     "          ^\nSyntaxError: invalid syntax\n", ("SyntaxError", "invalid syntax", "trainer/task.py:3")),
    ('  File "/a/trainer/task.py", line 3\n    def f(:\n          ^\nSyntaxError: invalid syntax\n',
     ("SyntaxError", "invalid syntax", "trainer/task.py:3")),
    ("/usr/bin/python3: No module named trainer.tsk\n", ("ModuleNotFoundError", "No module named trainer.tsk", "")),
    (NO_PACKAGE, ("ModuleNotFoundError", "No module named 'a'", "")),
    ("python3: can't open file 'x'\n", None),
    ("\ufffd\x00\n" + TB + MAIN + "ValueError: \ufffd\n", ("ValueError", "\ufffd", None)),
    (" " * 100_000 + TB + "(" * 50_000, None),
]  # fmt: skip


@pytest.mark.parametrize(("output", "expected"), TRACEBACKS, ids=range(len(TRACEBACKS)))
def test_the_error_is_read_from_what_a_program_printed(
    output: str, expected: tuple[str, str, str | None] | None
) -> None:
    found = parse_traceback(output)
    if expected is None:
        assert found is None
    else:
        assert found is not None
        assert (found["type"], found["message"]) == expected[:2]
        assert expected[2] in (None, found["frame"])


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("1/0", ("ZeroDivisionError", "division by zero")),
        ("import no_such_thing", ("ModuleNotFoundError", "No module named 'no_such_thing'")),
        ("try:\n  1/0\nexcept Exception as e:\n  raise KeyError('a\\nb') from e", ("KeyError", "'a\\nb'")),
        ("def f(:", ("SyntaxError", "invalid syntax")),
        ("raise SystemExit(3)", None),
    ],
)
def test_the_error_is_read_from_what_this_python_prints(
    tmp_path: Path, source: str, expected: tuple[str, str] | None
) -> None:
    (tmp_path / "task.py").write_text(source)
    done = subprocess.run([sys.executable, "-m", "task"], cwd=tmp_path, capture_output=True, text=True, check=False)
    found = parse_traceback(done.stderr)
    assert (found and (found["type"], found["message"])) == expected
    if found:
        assert found["frame"].startswith(f"{tmp_path.name}/task.py:")


def test_an_enormous_message_is_cut() -> None:
    found = parse_traceback(TB + MAIN + "ValueError: " + "x" * 100_000)
    assert found is not None
    assert len(found["message"]) == MESSAGE_CHARS


def test_the_index_goes_into_both_specs_and_the_rank_without_touching_the_gang() -> None:
    one = replica_id()
    environment = environment_of(one, {})
    assert json.loads(environment["TF_CONFIG"])["task"] == {"type": "worker", "cloud": "w1-ml", "index": 1}
    assert environment["RANK"] == "2"
    other = replace(one, vm=Vm(FIRST, "z", "1"))
    assert json.loads(environment_of(other, {})["TF_CONFIG"])["task"]["index"] == 0


def test_a_role_without_a_rank_has_no_rank() -> None:
    assert "RANK" not in environment_of(replica_id(rank_base=None), {})


def test_the_project_is_told_by_its_number_as_the_service_did_where_that_is_known() -> None:
    one = replica_id(environment={"CLOUD_ML_PROJECT_ID": "my-project"})
    assert environment_of(one, {})["CLOUD_ML_PROJECT_ID"] == "my-project"
    assert environment_of(replace(one, project_number="123"), {})["CLOUD_ML_PROJECT_ID"] == "123"


@pytest.mark.parametrize("job_dir", [None, ""])
def test_without_a_job_dir_there_is_no_such_argument(job_dir: str | None) -> None:
    assert command_of(replica_id(job_dir=job_dir, args=["-v"]).gang) == ["python3", "-m", "trainer.task", "-v"]


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [((1, 1), None, True), ((1, 2), (1, 1), True), ((2, 1), (1, 9), True), ((1, 1), (1, 1), False),
     ((1, 9), (2, 1), False)],
)  # fmt: skip
def test_a_later_life_supersedes_an_earlier_one(
    new: tuple[int, int], old: tuple[int, int] | None, expected: bool
) -> None:
    assert supersedes(Key(*new), Key(*old) if old else None) is expected


@pytest.mark.parametrize(
    ("returncode", "before", "after", "expected"),
    [
        pytest.param(-9, {"a": 1}, {"a": 2}, True, id="killed while the kernel counted a kill"),
        pytest.param(137, {"a": 1}, {"a": 2}, True, id="a launcher transient on that its child was"),
        pytest.param(-9, {"a": 1}, {"a": 1}, False, id="killed by somebody else"),
        pytest.param(137, {}, {}, False, id="no evidence to be had"),
        pytest.param(-9, {}, {"a": 5}, False, id="a counter that was not there before"),
        pytest.param(1, {"a": 1}, {"a": 2}, False, id="somebody else was killed"),
        pytest.param(-15, {"a": 1}, {"a": 2}, False, id="another signal"),
    ],
)
def test_out_of_memory_is(returncode: int, before: dict[str, int], after: dict[str, int], expected: bool) -> None:
    assert out_of_memory(returncode, before, after) is expected


def test_the_kernels_own_counters_can_be_read_here() -> None:
    assert "/proc/vmstat" in oom_kills()


def test_output_is_cut_at_line_ends_only_and_a_missing_one_is_added() -> None:
    data = iter([b"a", b"b\nc\nd", b"\n", b"e", b""])
    assert list(whole_lines(lambda: next(data))) == [b"ab\nc\n", b"d\n", b"e\n"]


def test_a_line_without_end_is_broken_rather_than_kept() -> None:
    data = itertools.chain(itertools.repeat(b"x" * 65536, 9), [b""])
    lines = list(whole_lines(lambda: next(data)))
    assert [len(line) - 1 for line in lines] == [LINE_MAX, LINE_MAX, 65536]


def test_a_tail_keeps_the_end_whatever_the_bytes() -> None:
    tail = Tail(4)
    for piece in (b"abc", b"def", b"\xff" * 20, b"gh"):
        tail.add(piece)
    assert tail.text() == "\ufffd\ufffdgh"


def test_waiting_times_grow_to_the_cap_and_never_beyond() -> None:
    waits = list(itertools.islice(backoffs(30.0), 20))
    assert all(0.25 <= wait <= 30 for wait in waits)
    assert min(waits[7:]) >= 15


def test_google_is_called_with_the_vms_token_which_is_asked_for_once(cloud: Cloud) -> None:
    google = Google(None, f"http://{cloud.host}", Metadata(cloud.host))
    for _ in range(2):
        google.call("/v1/projects/p/topics/t:publish", timeout=5, body=b'{"messages": []}')
    asked = [path for path, _ in cloud.requests if path.endswith("/token")]
    sent = [headers.get("Authorization") for path, headers in cloud.requests if path.endswith(":publish")]
    assert (len(asked), sent) == (1, ["Bearer secret", "Bearer secret"])


def test_a_token_about_to_end_is_replaced(cloud: Cloud) -> None:
    cloud.token_lasts_s = 59
    metadata = Metadata(cloud.host)
    metadata.access_token()
    metadata.access_token()
    assert len(cloud.requests) == 2


def test_a_refused_token_is_replaced(cloud: Cloud) -> None:
    google = Google(None, f"http://{cloud.host}", Metadata(cloud.host))
    cloud.publish_status = 401
    for _ in range(2):
        with pytest.raises(HttpError, match="401"):
            google.call("/v1/projects/p/topics/t:publish", timeout=5, body=b'{"messages": []}')
    assert len([path for path, _ in cloud.requests if path.endswith("/token")]) == 2


def test_an_emulator_never_sees_a_token(cloud: Cloud) -> None:
    Google(cloud.host, "https://pubsub.googleapis.com", Metadata(cloud.host)).call(
        "/v1/projects/p/topics/t:publish", timeout=5, body=b'{"messages": []}'
    )
    assert [path for path, _ in cloud.requests] == ["/v1/projects/p/topics/t:publish"]
    assert "Authorization" not in cloud.requests[0][1]
