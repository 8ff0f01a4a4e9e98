"""The agent's pure parts, and its calls to Google's real endpoints."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from shared.agent.control.vm_config import IncarnationKey, VmRef, supersedes
from shared.agent.google_http.google_api import GoogleApi
from shared.agent.google_http.http_call import HttpError, backoffs
from shared.agent.google_http.metadata_server import MetadataServer
from shared.agent.program.environment import command_of, environment_of
from shared.agent.program.output import LINE_MAX, Tail, whole_lines
from shared.agent.program.process_table import out_of_memory, read_oom_kill_counts
from shared.agent.program.tracebacks import MESSAGE_CHARS, parse_traceback

from .support.cloud import Cloud
from .support.vm import FIRST, agent_identity

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
def test_traceback_is_parsed_from_recorded_output(output: str, expected: tuple[str, str, str | None] | None) -> None:
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
def test_traceback_is_parsed_from_this_pythons_output(
    tmp_path: Path, source: str, expected: tuple[str, str] | None
) -> None:
    (tmp_path / "task.py").write_text(source)
    done = subprocess.run([sys.executable, "-m", "task"], cwd=tmp_path, capture_output=True, text=True, check=False)
    found = parse_traceback(done.stderr)
    assert (found and (found["type"], found["message"])) == expected
    if found:
        assert found["frame"].startswith(f"{tmp_path.name}/task.py:")


def test_traceback_with_a_huge_message_is_truncated() -> None:
    found = parse_traceback(TB + MAIN + "ValueError: " + "x" * 100_000)
    assert found is not None
    assert len(found["message"]) == MESSAGE_CHARS


def test_environment_has_the_task_index_and_leaves_the_config_unchanged() -> None:
    one = agent_identity()
    environment = environment_of(one, {})
    assert json.loads(environment["TF_CONFIG"])["task"] == {"type": "worker", "cloud": "w1-ml", "index": 1}
    assert environment["RANK"] == "2"
    other = replace(one, vm=VmRef(FIRST, "z", "1"))
    assert json.loads(environment_of(other, {})["TF_CONFIG"])["task"]["index"] == 0


def test_environment_has_no_rank_for_a_role_without_ranks() -> None:
    assert "RANK" not in environment_of(agent_identity(rank_base=None), {})


def test_environment_names_the_project_by_its_number_if_known() -> None:
    one = agent_identity(environment={"CLOUD_ML_PROJECT_ID": "my-project"})
    assert environment_of(one, {})["CLOUD_ML_PROJECT_ID"] == "my-project"
    assert environment_of(replace(one, project_number="123"), {})["CLOUD_ML_PROJECT_ID"] == "123"


@pytest.mark.parametrize("job_dir", [None, ""])
def test_command_has_no_job_dir_argument_without_a_job_dir(job_dir: str | None) -> None:
    assert command_of(agent_identity(job_dir=job_dir, args=["-v"]).config) == ["python3", "-m", "trainer.task", "-v"]


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [((1, 1), None, True), ((1, 2), (1, 1), True), ((2, 1), (1, 9), True), ((1, 1), (1, 1), False),
     ((1, 9), (2, 1), False)],
)  # fmt: skip
def test_later_incarnation_supersedes_an_earlier_one(
    new: tuple[int, int], old: tuple[int, int] | None, expected: bool
) -> None:
    assert supersedes(IncarnationKey(*new), IncarnationKey(*old) if old else None) is expected


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


def test_backoffs_grow_up_to_the_cap() -> None:
    waits = list(itertools.islice(backoffs(30.0), 20))
    assert all(0.25 <= wait <= 30 for wait in waits)
    assert min(waits[7:]) >= 15


def test_api_calls_use_the_vms_token_and_request_it_once(cloud: Cloud) -> None:
    google = GoogleApi(None, f"http://{cloud.host}", MetadataServer(cloud.host))
    for _ in range(2):
        google.call("/v1/projects/p/topics/t:publish", timeout=5, body=b'{"messages": []}')
    asked = [path for path, _ in cloud.requests if path.endswith("/token")]
    sent = [headers.get("Authorization") for path, headers in cloud.requests if path.endswith(":publish")]
    assert (len(asked), sent) == (1, ["Bearer secret", "Bearer secret"])


def test_token_about_to_expire_is_replaced(cloud: Cloud) -> None:
    cloud.token_lasts_s = 59
    metadata = MetadataServer(cloud.host)
    metadata.access_token()
    metadata.access_token()
    assert len(cloud.requests) == 2


def test_rejected_token_is_replaced(cloud: Cloud) -> None:
    google = GoogleApi(None, f"http://{cloud.host}", MetadataServer(cloud.host))
    cloud.publish_status = 401
    for _ in range(2):
        with pytest.raises(HttpError, match="401"):
            google.call("/v1/projects/p/topics/t:publish", timeout=5, body=b'{"messages": []}')
    assert len([path for path, _ in cloud.requests if path.endswith("/token")]) == 2


def test_emulator_gets_no_token(cloud: Cloud) -> None:
    GoogleApi(cloud.host, "https://pubsub.googleapis.com", MetadataServer(cloud.host)).call(
        "/v1/projects/p/topics/t:publish", timeout=5, body=b'{"messages": []}'
    )
    assert [path for path, _ in cloud.requests] == ["/v1/projects/p/topics/t:publish"]
    assert "Authorization" not in cloud.requests[0][1]
