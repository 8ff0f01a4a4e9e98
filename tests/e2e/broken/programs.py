"""Programs that are broken in the ways in which programs of users are.

Each one has what the command that shows the cause must print: the type and the message of the
error, and its file and line where Python knows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

WHY: Final = "why"
SUBMIT: Final = "submit"
SCIKIT_LEARN: Final = "scikit-learn-1.9"
PYTORCH: Final = "pytorch-2.13"
TRAIN: Final = ("python", "train.py")
TORCHRUN: Final = ("torchrun", "train.py")


@dataclass(frozen=True, slots=True)
class BrokenProgram:
    """A folder, its command, and what its user must read."""

    name: str
    files: Mapping[str, str]
    shows: tuple[str, ...]
    """Texts that one command prints about the cause."""
    command: tuple[str, ...] = TRAIN
    runtime: str = SCIKIT_LEARN
    workers: int = 0
    extension: Mapping[str, object] = field(default_factory=dict)
    """The field `trainmaster` of the job file."""
    options: tuple[str, ...] = ()
    """More options of `submit`."""
    seen_in: str = WHY
    """The one command: `why`, or `submit` itself, which refuses the job."""
    ends: str = "FAILED"
    """State at the end."""
    lives_max: int = 2
    """Starts of the program until the job ends, at most."""


def _program(name: str, source: str, *shows: str, **fields: object) -> BrokenProgram:
    return BrokenProgram(name, {"train.py": source}, shows, **fields)  # type: ignore[arg-type]


_GANG: Final = """
import os, sys, time
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank = dist.get_rank()
parameter = torch.zeros(4)
for epoch in range(1, 9):
    print(f"Epoch {epoch}/8 loss {1 / epoch}", flush=True)
    time.sleep(0.3)
    if epoch == 3:
        BREAK
    dist.all_reduce(parameter)
"""


def _gang(
    name: str,
    broken: str,
    *shows: str,
    command: tuple[str, ...] = TORCHRUN,
    **fields: object,
) -> BrokenProgram:
    source = _GANG.replace("BREAK", broken)
    return _program(name, source, *shows, command=command, runtime=PYTORCH, workers=1, **fields)


_NAN: Final = """
import time
for epoch in range(1, 9):
    print(f"Epoch {epoch}/8 loss {float('nan')}", flush=True)
    time.sleep(0.3)
"""
_PARSER: Final = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
parser.parse_args()
"""
_THREAD_REMAINS: Final = """
import threading, time
def serve():
    while True:
        time.sleep(3600)
threading.Thread(target=serve, name="prefetch").start()
print("Epoch 8/8 loss 0.1", flush=True)
"""
_THREAD_FAILS: Final = """
import threading, time
def load():
    {}["train"]
thread = threading.Thread(target=load)
thread.start()
thread.join()
time.sleep(2)
print("done")
"""
_LOADER_FAILS: Final = """
import queue, threading
batches = queue.Queue()
def load():
    raise ValueError("row 3 is broken")
threading.Thread(target=load).start()
batches.get()
"""
_EXIT_HANDLER_FAILS: Final = """
import atexit, time
def save():
    open("/no/folder/model.bin", "wb")
atexit.register(save)
time.sleep(2)
"""
_NO_TRACEBACK: Final = """
import sys
print("loading", flush=True)
print("config.toml: unknown optimizer 'adamx'", file=sys.stderr)
sys.exit(1)
"""
_BUCKET: Final = """
from google.cloud import storage
client = storage.Client(project="trainmaster-local")
client.bucket("no-such-bucket-42").blob("x").download_as_bytes()
"""
_POOL: Final = """
import multiprocessing

def work(row):
    return 1 / row

if __name__ == "__main__":
    with multiprocessing.Pool(2) as pool:
        print(pool.map(work, [1, 0]))
"""
_LOGGED: Final = """
import logging, sys
logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
try:
    {}["rows"]
except KeyError:
    logging.exception("training failed")
    sys.exit(1)
"""
_CHAINED: Final = """
def load():
    try:
        int("seven")
    except ValueError as error:
        raise RuntimeError("the table data.csv has no valid row") from error

load()
"""
_COLUMN: Final = """
import pandas
frame = pandas.DataFrame({"price": [1.0]})
print(frame["prize"].mean())
"""
_NAN_INPUT: Final = """
import numpy
from sklearn.linear_model import LinearRegression
LinearRegression().fit(numpy.array([[numpy.nan]]), numpy.array([1.0]))
"""
_RECURSION: Final = """
def depth(node):
    return 1 + depth(node)

depth(0)
"""
_ASSERTION: Final = """
rows = 0
assert rows > 0, "the training set is empty"
"""
_UNICODE: Final = """
print(bytes([0xff, 0xfe]).decode("utf-8"))
"""
_SEGFAULT: Final = """
import ctypes
print("loading a kernel", flush=True)
ctypes.string_at(0)
"""
_MEMORY: Final = """
import numpy
numpy.zeros((1 << 50,), dtype=numpy.uint8)
"""
_FOLDER: Final = """
import pathlib
pathlib.Path("/tmp").write_text("model")
"""

REVIEWED: Final = (
    _program(
        "missing_package",
        "import einops\n",
        "ModuleNotFoundError: No module named 'einops'",
        "train.py:1",
        "Add einops to requirements.txt",
        workers=1,
        lives_max=4,
    ),
    _program(
        "other_framework",
        "import torch\n",
        "No module named 'torch'",
        "train.py:1",
        "--runtime-version pytorch-2.13",
    ),
    _program("wrong_bucket", _BUCKET, "NotFound", "no-such-bucket-42", "train.py:4"),
    _gang(
        "rank_killed",
        "rank == 1 and os.kill(os.getpid(), 9)",
        "Signal 9 (SIGKILL)",
        lives_max=24,
        ends="CANCELLED",
    ),
    _program("loss_is_nan", _NAN, "loss was NaN or infinite at the end", ends="SUCCEEDED"),
    _gang(
        "rank_hangs",
        "rank == 1 and time.sleep(3600)",
        "printed nothing for",
        "train.py:1",
        extension={"stallTimeout": "60s"},
        lives_max=4,
    ),
    _program(
        "missing_file",
        'open("data/train.csv")\n',
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv'",
        "train.py:1",
    ),
    _program(
        "wrong_argument",
        _PARSER,
        "unrecognized arguments: --epoch-count 3",
        command=(*TRAIN, "--epoch-count", "3"),
    ),
    _gang(
        "exception_in_one_rank",
        'if rank == 1: raise ValueError("bad batch")',
        "worker 0",
        "ValueError: bad batch",
        "train.py:13",
        lives_max=4,
    ),
    _gang(
        "chief_exits_early",
        "if rank == 0: sys.exit(0)",
        "of its own progress",
        command=TRAIN,
        ends="SUCCEEDED",
        lives_max=4,
    ),
    _gang(
        "worker_exits_early",
        "if rank == 1: sys.exit(0)",
        "worker 0 had exited 0",
        "give all ranks the same number of steps",
        command=TRAIN,
    ),
    _gang(
        "ranks_of_the_chief_end_early",
        "if rank == 0: sys.exit(0)",
        "the ranks of chief 0 had exited 0",
        "give all ranks the same number of steps",
    ),
    BrokenProgram(
        "wrong_package_name",
        {"train.py": "print(1)\n", "requirements.txt": "torchmetrix-x==1.4\n"},
        ("torchmetrix-x==1.4", "equirements.txt"),
        lives_max=1,  # the failed set-up, after which nothing starts
    ),
    _program(
        "nothing_done",
        'def main():\n    print("training")\n\nif __name__ == "main":\n    main()\n',
        "printed nothing",
        ends="SUCCEEDED",
    ),
    _program(
        "syntax_error",
        "for x in range(3)\n    pass\n",
        "train.py:1",
        "expected ':'",
        seen_in=SUBMIT,
    ),
    _program(
        "unknown_host",
        'import urllib.request\nurllib.request.urlopen("http://no-such-host.invalid/data")\n',
        "Name or service not known",
        "train.py:2",
    ),
    _program("exit_1_without_traceback", _NO_TRACEBACK, "config.toml: unknown optimizer 'adamx'"),
    _program(
        "thread_keeps_the_process",
        _THREAD_REMAINS,
        "printed nothing for",
        "the main program had ended, and a thread kept its process",
        "train.py:5",
        extension={"stallTimeout": "60s"},
    ),
    _program(
        "wrong_file_name",
        "print(1)\n",
        "trian.py is not among the files",
        "did you mean train.py?",
        command=("python", "trian.py"),
        seen_in=SUBMIT,
    ),
    _program(
        "quoted_command",
        "print(1)\n",
        "is one word, and no program has this name",
        command=("python train.py --x 1",),
        seen_in=SUBMIT,
    ),
    BrokenProgram(
        "module_with_suffix",
        {"trainer/__init__.py": "", "trainer/task.py": "print(1)\n"},
        ("trainer.task.py is the name of a file", "write trainer.task"),
        command=("python", "-m", "trainer.task.py"),
        seen_in=SUBMIT,
    ),
    _program(
        "wrong_machine_type",
        "print(1)\n",
        "n1-standrad-4",
        "n1-standard-4",
        options=("--scale-tier=custom", "--master-machine-type=n1-standrad-4"),
        seen_in=SUBMIT,
    ),
    _program(
        "wrong_region",
        "print(1)\n",
        "us-centrall1",
        "us-central1",
        options=("--region=us-centrall1",),
        seen_in=SUBMIT,
    ),
)
"""Those of a newcomer's hour."""

MORE: Final = (
    _program(
        "missing_variable",
        'import os\nos.environ["DATA_PATH"]\n',
        "KeyError: 'DATA_PATH'",
        "train.py:2",
    ),
    _program("folder_for_a_file", _FOLDER, "IsADirectoryError", "'/tmp'", "train.py:3"),
    _program(
        "broken_json",
        "import json\njson.loads('{\"lr\": }')\n",
        "JSONDecodeError: Expecting value",
        "train.py:2",
    ),
    _program(
        "shapes_differ",
        "import numpy\nnumpy.ones((3, 4)) @ numpy.ones((3, 4))\n",
        "ValueError: matmul",
        "train.py:2",
    ),
    BrokenProgram(
        "error_in_an_own_module",
        {
            "train.py": "import data\ndata.load(0)\n",
            "data.py": "def load(rows):\n    return 1 / rows\n",
        },
        ("ZeroDivisionError: division by zero", "data.py:2"),
    ),
    _program("recursion", _RECURSION, "RecursionError", "train.py:3"),
    _program("assertion", _ASSERTION, "AssertionError: the training set is empty", "train.py:3"),
    BrokenProgram(
        "wrong_import_name",
        {"train.py": "from model import Netz\n", "model.py": "class Net: ...\n"},
        ("ImportError: cannot import name 'Netz' from 'model'", "train.py:1"),
    ),
    _program(
        "exit_with_a_message",
        'import sys\nsys.exit("no rows are left after the filter")\n',
        "no rows are left after the filter",
    ),
    _program("logged_exception", _LOGGED, "KeyError: 'rows'", "train.py:5"),
    _program(
        "error_in_a_pool", _POOL, "ZeroDivisionError: division by zero", "train.py:", command=TRAIN
    ),
    _program("segmentation_fault", _SEGFAULT, "11(SIGSEGV) in string_at", "train.py:4"),
    _program(
        "abort",
        'import os\nprint("start", flush=True)\nos.abort()\n',
        "6(SIGABRT)",
        "train.py:3",
    ),
    _program("array_is_too_large", _MEMORY, "MemoryError", "Unable to allocate", "train.py:3"),
    _program(
        "chained_errors",
        _CHAINED,
        "RuntimeError: the table data.csv has no valid row",
        "train.py:6",
    ),
    BrokenProgram(
        "unknown_command_in_a_script",
        {"train.py": "", "run.sh": "set -e\ntrain-modell --epochs 3\n"},
        ("train-modell: command not found",),
        command=("bash", "run.sh"),
    ),
    _program("unknown_column", _COLUMN, "KeyError: 'prize'", "train.py:4"),
    _program("input_with_nan", _NAN_INPUT, "ValueError: Input X contains NaN", "train.py:4"),
    _program("wrong_encoding", _UNICODE, "UnicodeDecodeError: 'utf-8' codec", "train.py:2"),
    _program(
        "error_in_a_thread",
        _THREAD_FAILS,
        "its output ends with KeyError: 'train'",
        "train.py:4",
        ends="SUCCEEDED",
    ),
    _program(
        "error_in_an_exit_handler",
        _EXIT_HANDLER_FAILS,
        "its output ends with FileNotFoundError",
        "'/no/folder/model.bin'",
        "train.py:4",
        ends="SUCCEEDED",
    ),
    _program(
        "message_of_a_rank_below_torchrun",
        _NO_TRACEBACK,
        "stderr ends with \"config.toml: unknown optimizer 'adamx'\"",
        command=TORCHRUN,
        runtime=PYTORCH,
    ),
    _program(
        "hang_after_an_error_in_a_thread",
        _LOADER_FAILS,
        "printed nothing for",
        "after the error ValueError: row 3 is broken",
        "train.py:5",
        extension={"stallTimeout": "60s"},
    ),
    _program(
        "error_before_a_pipe",
        'open("data/train.csv")\n',
        "its output ends with FileNotFoundError",
        "train.py:1",
        command=("sh", "-c", "python train.py 2>&1 | tee log.txt"),
        ends="SUCCEEDED",
    ),
    BrokenProgram(
        "pin_of_the_framework",
        {"train.py": "import torch\n", "requirements.txt": "torch<2.6\n"},
        ("torch<2.6 excludes torch 2.13", "requirements.txt"),
        runtime=PYTORCH,
        seen_in=SUBMIT,
    ),
)
"""More kinds of errors."""

PROGRAMS: Final = (*REVIEWED, *MORE)
