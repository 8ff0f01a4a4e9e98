"""Errors are found in whatever shape they are printed, and mixed with what others print."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from rich.traceback import Frame as RichFrame
from rich.traceback import Stack as RichStack
from rich.traceback import Trace, Traceback

from trainmaster.agent.program.printed_shapes import TRACEBACK
from trainmaster.agent.program.tracebacks import parse_traceback

PLAIN = (
    f"{TRACEBACK}\n"
    '  File "/opt/run/train.py", line 5, in main\n'
    "    inner(3)\n"
    '  File "/opt/run/train.py", line 3, in inner\n'
    '    return {"a": 1}["missing"]\n'
    "KeyError: 'missing'\n"
)
EXPECTED = ("KeyError", "'missing'", "run/train.py:3 in inner")


def found(output: str) -> tuple[str, str, str] | None:
    error = parse_traceback(output)
    return None if error is None else (error["type"], error["message"], error["own_frame"])


def labelled(label: str, text: str = PLAIN) -> str:
    return "".join(f"{label}{line}\n" for line in text.splitlines())


def timed(label: str) -> str:
    """Return a traceback whose lines have labels with the number of the line, such as a time."""
    lines = enumerate(PLAIN.splitlines())
    return "".join(f"{label.format(number)}{line}\n" for number, line in lines)


NOTEBOOK = """\
---------------------------------------------------------------------------
KeyError                                  Traceback (most recent call last)
Cell In[1], line 5
      3     inner(3)
----> 5 main()

File /opt/run/train.py:5, in main()
      4 def main():
----> 5     inner(3)

File /opt/run/train.py:3, in inner(x)
      2 def inner(x):
----> 3     return {"a": 1}["missing"]

KeyError: 'missing'
"""
OLD_NOTEBOOK = """\
---------------------------------------------------------------------------
KeyError                                  Traceback (most recent call last)
/opt/run/train.py in main()
      4 def main():
----> 5     inner(3)

/opt/run/train.py in inner(x)
      2 def inner(x):
----> 3     return {"a": 1}["missing"]

KeyError: 'missing'
"""
LAUNCHED = f"""\
{TRACEBACK}
  File "/usr/local/bin/torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
  <NO_OTHER_FAILURES>
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_16:15:00
  host      : vm-1
  rank      : 1 (local_rank: 1)
  exitcode  : 1 (pid: 7)
  error_file: /tmp/torchelastic_x/none_y/attempt_0/1/error.json
  traceback : {PLAIN.rstrip().replace(chr(10), chr(10) + "  ")}

============================================================
"""
RAY_TASK = f"""\
{TRACEBACK}
  File "/opt/run/train.py", line 9, in <module>
    ray.get(train.remote())
  File "/usr/lib/python3/dist-packages/ray/_private/worker.py", line 904, in get_objects
    raise value.as_instanceof_cause()
ray.exceptions.RayTaskError(KeyError): \x1b[36mray::train()\x1b[39m (pid=77, ip=10.0.0.1)
{PLAIN.partition(chr(10))[2]}"""
RICH_LOG = """\
[16:15:00] ERROR    training failed                              train.py:12
                    ╭──── Traceback (most recent call last) ────╮
                    │ /opt/run/train.py:5 in main               │
                    │                                           │
                    │ ❱ 5 │   inner(3)                          │
                    │ ╭─── locals ───╮                          │
                    │ │ x = 3        │                          │
                    │ ╰──────────────╯                          │
                    │ /opt/                                     │
                    │ run/train.py:3 in inner                   │
                    ╰───────────────────────────────────────────╯
                    KeyError: 'missing'
"""
STRUCTLOG = json.dumps(
    {
        "event": "training failed",
        "exception": [
            {
                "exc_type": "KeyError",
                "exc_value": "'missing'",
                "frames": [{"filename": "/opt/run/train.py", "lineno": 3, "name": "inner"}],
            }
        ],
    }
)
COLOURED = (
    f'{TRACEBACK}\n  File \x1b[35m"/opt/run/train.py"\x1b[0m, line \x1b[35m3\x1b[0m, in'
    " \x1b[35minner\x1b[0m\n    \x1b[31m~~~~\x1b[0m\n"
    "\x1b[1;35mKeyError\x1b[0m: \x1b[35m'missing'\x1b[0m\n"
)

SHAPES = {
    "JSON": json.dumps({"severity": "ERROR", "message": "failed", "exc_info": PLAIN}),
    "JSON, in the message": json.dumps({"message": f"training failed: {PLAIN}"}),
    "JSON, nested": json.dumps({"a": {"error": {"stack_trace": PLAIN}}, "text": PLAIN}),
    "JSON behind a label": "worker-0  | " + json.dumps({"exc_info": PLAIN}),
    "JSON that is cut off at its start": json.dumps({"a": "x" * 99, "exc_info": PLAIN})[80:],
    "JSON, coloured": json.dumps({"exc_info": COLOURED}),
    "structlog's dictionaries": STRUCTLOG,
    "logfmt": f"level=error exception={json.dumps(PLAIN)} step=3",
    "repr": f"failed: {PLAIN!r}",
    "a logging library": f"2026-11-28 12:00:00,123 - train - ERROR - {PLAIN}",
    "a logging library, and text": f"2026-11-28 12:00:00,123 ERROR Training failed: {PLAIN}",
    "a level": f"ERROR:root:{PLAIN}",
    "a level, each line": labelled("2026-11-28 12:00:00,123 - train - ERROR - "),
    "times of docker": timed("2026-11-28T16:15:00.{:09d}Z "),
    "times of kubectl": timed("[pod/trainer-0/main] 2026-11-28T16:15:00.{:09d}Z "),
    "times of journalctl": timed("Nov 28 16:15:{:02d} vm-1 trainer[77]: "),
    "times of ts -s": timed("00:00:{:02d} "),
    "times of ts, in seconds": timed("1764346500.{:06d} "),
    "absl, each line": timed("E1128 16:15:00.{:06d} 140 train.py:12] "),
    "hydra, each line": timed("[2026-11-28 12:00:00,{:03d}][train][ERROR] - "),
    "a logger without a date, each line": timed("16:15:00.{:03d} ERROR "),
    "a level and a time, each line": timed("ERROR 2026/11/28 16:15:{:02d} train: "),
    "labels of srun": labelled("0: "),
    "labels of compose": labelled("worker-0  | "),
    "labels of kubectl": labelled("[pod/trainer-0/main] "),
    "box behind labels": labelled("1: ", RICH_LOG.replace(" " * 20, "").partition("\n")[2]),
    "rich's handler": RICH_LOG,
    "a notebook": NOTEBOOK,
    "a notebook of IPython 7": OLD_NOTEBOOK,
    "torchrun's report, if the worker's output is in a file": LAUNCHED,
    "a task of Ray": RAY_TASK,
    "a worker of Ray, whose lines others repeat": labelled(
        "\x1b[36m(train pid=7, ip=10.0.0.2)\x1b[0m ",
        f"{PLAIN.rstrip()} [repeated 3x across cluster] (Ray deduplicates logs by default.)",
    ),
    "colours": COLOURED,
    "CRLF": PLAIN.replace("\n", "\r\n"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_error_is_found_in_this_shape(shape: str) -> None:
    assert found(f"step 1\n{SHAPES[shape]}") == EXPECTED


PRINTED = Path(__file__).with_name("printed_tracebacks")
"""What programs have printed that ended with the same error, by the library that printed it."""


@pytest.mark.parametrize("file", sorted(PRINTED.iterdir()), ids=lambda file: file.stem)
def test_error_is_found_in_what_this_library_has_printed(file: Path) -> None:
    assert found(file.read_text()) == ("KeyError", "'missing'", PLACES.get(file.stem, PLACE))


PLACE = "run/train.py:2 in inner"
PLACES = {"pytest.line": "run/train.py:2"}
"""Where it prints less."""


def test_failed_assertion_of_a_test_has_its_type_and_message() -> None:
    report = (PRINTED / "pytest.auto.txt").read_text()
    report = report.replace("E       KeyError: 'missing'", "E       assert 3 < 2\nE        +  x")
    report = report.replace(":2: KeyError", ":2: AssertionError")
    assert found(report) == ("AssertionError", "assert 3 < 2\n+  x", PLACE)


def test_time_is_left_in_lines_whose_label_is_another_one() -> None:
    text = "2026-11-28 16:15:07 is not the time of a label"
    lines = timed("[a] 2026-11-28T16:15:00.{:09d}Z ").replace("'missing'", f"'{text}'")
    error = parse_traceback(lines)
    assert error is not None
    assert text in error["message"]


NOTES = {
    "W&B": "wandb: \nwandb: 🚀 View run glowing-sun-12 at: https://wandb.ai/t/p/runs/k2j3h4g5\n",
    "Comet": "COMET INFO: -----\nCOMET INFO: Comet.ml Experiment Summary\n",
    "Neptune": "[neptune] [info   ] Shutting down background jobs\n",
    "MLflow": "🏃 View run sun-12 at: http://127.0.0.1:5000/#/experiments/0/runs/1f2e\n",
    "ClearML": "ClearML Monitor: Could not detect iteration reporting\n",
    "Sentry": "Sentry is attempting to send 2 pending events\nWaiting up to 2 seconds\n",
    "hydra": "\nSet the environment variable HYDRA_FULL_ERROR=1 for a complete stack trace.\n",
    "a tracker of one's own": "tracker: \ntracker: sync runs/offline-run-k2j3h4g5\n",
    "PyTorch": "[rank0]:[W1128 16:15:00.1 ProcessGroupNCCL.cpp:1496] Warning: destroy\n",
    "resource_tracker": "/usr/lib/python3.12/x/resource_tracker.py:254: UserWarning: leaked\n  w\n",
    "python -X dev": "sys:1: ResourceWarning: unclosed file <_io.TextIOWrapper name='x'>\n",
    "atexit": "Error in atexit._run_exitfuncs:\n",
    "JSON": '{"message": "bye", "run": "k2j3h4g5"}\n',
    "TensorFlow": "2026-11-28 16:15:00.123456: I tensorflow/core/x.cc:1] cleanup\n",
    "tqdm": "Epoch 0:   5%|▌         | 5/100 [00:00<00:14,  6.6it/s]\n",
    "a bar of rich": "Epoch 0/9 ━━━━╺━━━━━━━ 12/100 0:00:01 • 0:00:08 10.04it/s v_num: 0.000\n",
    "JAX": "--------------------\nFor simplicity, JAX has removed its internal frames from it.\n",
    "Lightning": "[rank: 1] Child process with PID 77 terminated with code 1. Forcefully\n",
    "srun": "srun: error: vm-1: task 0: Exited with exit code 1\n",
    "slurmstepd": "slurmstepd: error: *** STEP 77.0 ON vm-1 CANCELLED ***\n",
    "make": "make: *** [Makefile:3: train] Error 1\n",
}


@pytest.mark.parametrize("note", NOTES)
@pytest.mark.parametrize("shape", [PLAIN, RICH_LOG, NOTEBOOK, COLOURED])
def test_what_others_print_behind_a_traceback_is_no_part_of_its_message(
    shape: str, note: str
) -> None:
    assert found(shape + NOTES[note]) == EXPECTED


def test_notes_and_further_lines_of_the_exception_are_parts_of_its_message() -> None:
    lines = "ValueError: two problems:\n  loss: 1\n  lr: 2\nsee the docs\n(while training)\n"
    expected = "two problems:\n  loss: 1\n  lr: 2\nsee the docs\n(while training)"
    assert found(PLAIN.rpartition("KeyError")[0] + lines) == ("ValueError", expected, EXPECTED[2])


def test_report_of_torchrun_repeats_what_a_rank_has_printed() -> None:
    assert parse_traceback(f"  traceback : {PLAIN}") is None


class Frame(NamedTuple):
    file: str
    line: int
    function: str


NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
FILES = st.sampled_from(["/usr/share/perl", "/usr/share/doc", "/etc/hostname"])
"""They exist on the machine, because rich leaves out the names of files that do not."""
FRAMES = st.lists(st.builds(Frame, FILES, st.integers(1, 999), NAMES), min_size=1, max_size=5)
TYPES = st.sampled_from(["ValueError", "KeyError", "torch.cuda.OutOfMemoryError", "Odd"])
MESSAGES = st.text("abc xyz'(){}[]=,.12", max_size=40).map(lambda text: f"bad {text}".strip())


def plain(frames: Sequence[Frame], error: str, message: str) -> str:
    places = "".join(
        f'  File "{frame.file}", line {frame.line}, in {frame.function}\n    call()\n'
        for frame in frames
    )
    return f"{TRACEBACK}\n{places}{error}: {message}\n"


def boxed(frames: Sequence[Frame], error: str, message: str) -> str:
    """Return what rich itself prints."""
    stack = RichStack(error, message, frames=[RichFrame(*frame) for frame in frames])
    text = io.StringIO()
    console = Console(file=text, width=100, soft_wrap=True, highlight=False)
    console.print(Traceback(Trace([stack]), width=100))
    return text.getvalue()


CARRIERS: Sequence[Callable[[str], str]] = (
    str,
    lambda text: json.dumps({"message": "failed", "exc_info": text}) + "\n",
    lambda text: json.dumps({"log": {"message": f"failed: {text}"}}, ensure_ascii=False) + "\n",
    lambda text: f"level=error exc={json.dumps(text)}\n" if text[0] == "T" else text,
    lambda text: f"2026-11-28 12:00:00,123 - t - ERROR - {text}" if text[0] == "T" else text,
    lambda text: re.sub(r"(line |\d+|Error)", "\x1b[35m\\1\x1b[0m", text),
)
LABELS = ("", "0: ", "worker-0  | ", "[rank3]: ", "(Worker pid=7) ", "[1,0]<stderr>:")


@given(
    FRAMES,
    TYPES,
    MESSAGES,
    st.sampled_from([plain, boxed]),
    st.lists(st.sampled_from(CARRIERS), max_size=2, unique=True),
    st.sampled_from(LABELS),
    st.lists(st.sampled_from([*NOTES.values()]), max_size=3),
)
@settings(deadline=None, max_examples=60)
def test_error_is_found_in_any_mix_of_shapes(
    frames: list[Frame],
    error: str,
    message: str,
    shape: Callable[[Sequence[Frame], str, str], str],
    carriers: list[Callable[[str], str]],
    label: str,
    notes: list[str],
) -> None:
    text = shape(frames, error, message)
    for carrier in carriers:
        text = carrier(text)
    last = frames[-1]
    place = f"{'/'.join(last.file.split('/')[-2:])}:{last.line} in {last.function}"
    output = "step 1\n" + labelled(label, text) + "".join(notes)
    assert found(output) == (error, message, place)


def fill(unit: str) -> str:
    return (unit * (65_536 // len(unit) + 1))[:65_536]


HEAD = f'{TRACEBACK}\n  File "a", line 1, in f\n'


@pytest.mark.parametrize(
    "output",
    [
        fill(TRACEBACK + "\n"),
        fill(HEAD),
        fill(HEAD + "!!\n"),
        fill("[" * 500 + TRACEBACK + "\n"),
        "".join(f"[{number}]: {TRACEBACK}\n[{number}]:   x\n" for number in range(800)),
        fill(HEAD + "E: x\n\nDuring handling of the above exception, x\n\n"),
        fill(f'{{"a": "{TRACEBACK}"}}\n'),
        fill('{"a": ') + TRACEBACK,
        f"{TRACEBACK}\\n" + fill('\\"'),
        fill('\\"') + f"{TRACEBACK}\\n",
        fill(f"{TRACEBACK}\\n"),
        "+- Traceback (most recent call last) -+\n" + fill("| /a/b\n"),
        fill("+- ") + "Traceback (most recent call last) -+",
        fill("2026-11-28 12:00:00 "),
        '2026-11-28 12:00:00   File "a", line 1\n' + fill("2026-11-28 12:00:00" + " " * 500),
        fill("\x1b["),
        fill("\x1b]a"),
        "Key   Traceback (most recent call last)\n" + fill("File /a:1, in f\n"),
        HEAD + "E: x\n" + fill("a: b\n"),
        fill("16:15:00 " + TRACEBACK + "\n"),
        fill(f'16:15:00 {TRACEBACK}\n16:15:00   File "a", line 1\n'),
        fill("1764346500.1 " + "1" * 300 + "\n"),
        "=== FAILURES ===\n" + fill("a:1: b\nE   x\n"),
        "=== FAILURES ===\n" + fill("___ a ___\na:1: \n"),
        fill(f"{HEAD}ChildFailedError: Root Cause traceback : {TRACEBACK}\n"),
        fill("> File "),
        fill(" [repeated 1x across cluster]"),
        HEAD + "E: x\n" + fill("━ " * 90 + "\n"),
        fill('["' + TRACEBACK + '"]\n'),
    ],
    ids=range(29),
)
def test_hostile_output_takes_little_time(output: str) -> None:
    began = time.process_time()
    parse_traceback(output)
    assert time.process_time() - began < 1.0


PROGRAMS = {
    "plain": "main()",
    "JSON": """
try:
    main()
except Exception:
    print(json.dumps({"severity": "ERROR", "exc_info": traceback.format_exc()}), file=sys.stderr)
    sys.exit(1)
""",
    "logging": """
logging.basicConfig(format="%(asctime)s - %(name)s - %(levelname)s - %(message)s")
try:
    main()
except Exception:
    logging.error("Training failed: %s", traceback.format_exc())
    sys.exit(1)
""",
    "tracker": """
run = random.random()
atexit.register(lambda: print(f"tracker: \\ntracker: sync runs/{run}", file=sys.stderr))
main()
""",
    "rich": """
from rich.traceback import install
install(width=100)
main()
""",
    "line by line": """
logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s")
try:
    main()
except Exception:
    for line in traceback.format_exc().splitlines():
        logging.error(line)
    sys.exit(1)
""",
    "progress bar": """
try:
    main()
except Exception:
    traceback.print_exc()
print(f"Epoch 0:   5%|▌   | 5/100 [00:00<00:14, {random.random():.2f}it/s]", file=sys.stderr)
sys.exit(1)
""",
    "exception": """
try:
    main()
except Exception:
    logging.exception("training failed")
    sys.exit(1)
""",
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_runs_of_a_failing_program_have_the_same_error(name: str, tmp_path: Path) -> None:
    """Rule 8 compares type, message and place."""
    program = tmp_path / "train.py"
    program.write_text(
        "import atexit, json, logging, random, sys, traceback\n"
        'def main():\n    return {"a": 1}["missing"]\n' + PROGRAMS[name]
    )
    command = [sys.executable, str(program)]
    runs = [subprocess.run(command, capture_output=True, text=True, check=False) for _ in range(2)]
    expected = ("KeyError", "'missing'", f"{tmp_path.name}/train.py:3 in main")
    assert [found(run.stderr) for run in runs] == [expected] * 2
