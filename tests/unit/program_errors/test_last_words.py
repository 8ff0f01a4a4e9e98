"""The line with which programs say why they exited, before what others print behind it."""

from __future__ import annotations

import pytest

from trainmaster.program_errors.last_words import closing_line, last_words

CAUSE = "train.py: error: unrecognized arguments: --epoch"
PACKAGES = "/home/trainer/environments/python3.11/lib/python3.11/site-packages/"
TORCHRUN = """W1130 19:31:50.123000 28550 torch/distributed/elastic/api.py:1015] Sending
E1130 19:31:50.223000 28550 torch/distributed/elastic/api.py:984] failed (exitcode: 2)
Traceback (most recent call last):
  File "/usr/bin/torchrun", line 10, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
train.py FAILED
  rank      : 0 (local_rank: 0)
  exitcode  : 2 (pid: 28551)
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
TRAILERS = {
    "nothing": "",
    "logging": "INFO:train:shutting down\n",
    "logging with a time": "2026-11-30 19:31:56,603 - train - WARNING - no cache\n",
    "loguru": "2026-11-30 19:31:56.603 | INFO     | __main__:<module>:4 - bye\n",
    "hydra": "[2026-11-30 19:31:56,603][__main__][INFO] - bye\n",
    "glog": "I1130 19:31:56.603000 7 cleanup.cc:9] bye\n",
    "TensorFlow": "2026-11-28 16:15:00.123456: I tensorflow/core/x.cc:1] cleanup\n",
    "warning": "/app/train.py:3: UserWarning: deprecated\n  warnings.warn('deprecated')\n",
    "resource_tracker": "UserWarning: resource_tracker: There appear to be 1 leaked objects\n",
    "torchrun": TORCHRUN,
    "torchrun of a system's Python": TORCHRUN.replace(
        "torch/distributed", f"{PACKAGES}torch/distributed"
    ),
    "torchrun, a file without its folder": TORCHRUN.replace("torch/distributed/elastic/", ""),
    "torchrun of PyTorch 2.1": "[2026-11-30 19:31:50,123] torch.distributed.elastic.api:"
    " [ERROR] failed (exitcode: 1) local_rank: 0 (pid: 7) of binary: python\n",
    "torchrun of PyTorch 1": "ERROR:torch.distributed.elastic.api:failed (exitcode: 1)"
    " local_rank: 0 (pid: 7) of binary: python\n",
    "trap of a script in a deep folder": f"{PACKAGES * 2}run.sh: cleaning up\n",
    "accelerate": 'Traceback (most recent call last):\n  File "/bin/accelerate", line 7, in f\n'
    "subprocess.CalledProcessError: Command '['python']' returned non-zero exit status 2.\n",
    "trap": "cleaning up\n",
    "trap of a function": "run.sh: Cleanup of /tmp/x1...\n",
    "trap with a status": "--- Exit code: 1 ---\n",
    "trap of ERR": "run.sh: error on line 2\n",
    "several lines of a trap": "Removing temporary files\nDone.\nbye\n",
    "time of bash": "\nreal\t0m0.005s\nuser\t0m0.002s\nsys\t0m0.003s\n",
    "GNU time": "Command exited with non-zero status 1\n0.02user 0.00system 0:00.03elapsed 96%CPU\n"
    "0inputs+0outputs (0major+936minor)pagefaults 0swaps\n",
    "make": "make: *** [Makefile:2: train] Error 2\n",
    "srun": "srun: error: vm-1: task 0: Exited with exit code 2\n",
    "absl": "Pass --helpshort or --helpfull to see help on flags.\n",
    "fire": "Usage: train.py LR\n\nFor detailed information on this command, run:\n"
    "  train.py --help\n",
    "tqdm": "\r 50%|█████     | 5/10 [00:01<00:01,  3.91it/s]",
    "W&B": "wandb: \nwandb: View run glowing-sun-12 at: https://wandb.ai/t/p/runs/k2j3h4g5\n",
    "R": "Calls: main -> read\nExecution halted\n",
    "Java": "\tat trainer.Main.load(Main.java:12)\n\t... 5 more\n",
    "Rust": "note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace\n",
}


@pytest.mark.parametrize("trailer", TRAILERS)
def test_last_words_are_before_what_others_print(trailer: str) -> None:
    assert last_words(f"loading\n{CAUSE}\n{TRAILERS[trailer]}") == CAUSE


@pytest.mark.parametrize(
    "words",
    [
        "train.py: error: argument --level: invalid choice: 'X' (choose from DEBUG, INFO)",
        "ERROR:train:column 'price' is missing",
        "2026-11-30 19:31:56.603 | ERROR    | __main__:<module>:4 - no rows",
        "E1130 19:31:56.603000 7 solver.cc:9] no license",
        "FATAL the license of the solver has expired",
        "{'error': 'no rows'}",
        '{"level": "error", "message": "no rows"}',
        'Exception in thread "main" java.lang.IllegalStateException: no rows',
        "cannot run at INFO level",
        "cleanup failed: the bucket is read-only",
        "rm: cleaning up: Permission denied",
        "done with 3 epochs of 8: the loss is NaN",
        "real weights are required",
        "stopping: no GPU is left",
    ],
)
def test_line_that_names_a_cause_is_no_trailer(words: str) -> None:
    assert last_words(f"INFO:train:begin\n{words}\n") == words


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("INFO:train:begin\nINFO:train:end\n", "INFO:train:end"),
        (TORCHRUN, "failed (exitcode: 2)"),
        ("\n---\n", ""),
    ],
    ids=["log", "torchrun", "no word"],
)
def test_output_without_last_words_has_a_closing_line(text: str, line: str) -> None:
    assert last_words(text) == ""
    assert closing_line(text).endswith(line)
    assert closing_line(f"{CAUSE}\n{text}") == CAUSE


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("first\nsecond\n", "second"),
        ("error: no file\n\n  ^^^^\n====\n", "error: no file"),
        ("10%\r20%\r30%", "30%"),
        ("  indented  \n", "indented"),
        ("---\n", ""),
        ("", ""),
    ],
)
def test_last_words_are_a_line_with_a_word(text: str, line: str) -> None:
    assert last_words(text) == line
