"""Ranks of one machine that ended before the others: a rank waits for them, and fails.

torchrun ends the ranks that still run when one has failed, and says so, one line for each. Then it
lists all that failed, also those that it ended. The ranks that it does not name had exited 0. Their
number is in the command, and not in this output. If torchrun lists no other failure, all other
ranks had exited 0.

    RuntimeError: [...gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:31904
    ... Sending process 32510 closing signal SIGTERM
    ... failed (exitcode: 1) local_rank: 1 (pid: 32511) of binary: /usr/bin/python
    Failures:
      exitcode  : -15 (pid: 32510)  (SIGTERM)          or: <NO_OTHER_FAILURES>
    Root Cause (first observed failure):
      exitcode  : 1 (pid: 32511)

Source: torch/distributed/elastic/multiprocessing, api.py and errors/__init__.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise, takewhile
from typing import Final

from trainmaster.core.events import ProgramError, ReplicaExited
from trainmaster.core.model.task_group import Program, TaskGroup
from trainmaster.core.rules.evidence import reports_lost_peer, reports_silent_peer

_ENDED_RANK: Final = re.compile(r"Sending process (\d+) closing signal")
_FAILED_RANK: Final = re.compile(r"exitcode  : -?\d+ \(pid: (\d+)\)")
_NO_OTHER_FAILURE: Final = "<NO_OTHER_FAILURES>"
_COLLECTIVE: Final = "distributed_c10d.py"
"""File of PyTorch whose functions wait for other ranks."""
_TORCHRUN: Final = ("torchrun", "torch.distributed.run")
_RANKS_OPTIONS: Final = {
    "torchrun": re.compile(r"--nproc[-_]per[-_]node(?:=(.+))?"),
    "accelerate": re.compile(r"--num[-_]processes(?:=(.+))?"),
}
_RANKS_VARIABLE: Final = "PET_NPROC_PER_NODE"
"""A variable that torchrun reads. The agent sets it to the number of GPUs, or 1, if the job does
not.
"""
_OTHER_PROGRAM: Final = frozenset(("--no-python", "--no_python"))
_VISIBLE_GPUS: Final = "CUDA_VISIBLE_DEVICES"


def ranks_of(program: Program, group: TaskGroup) -> int | None:
    """Return how many ranks the command starts on the machine.

    None: that is not known, because the command is no launcher (a shell or a script may start one),
    or the launcher reads the number elsewhere, as accelerate does from its configuration.
    """
    launcher, options = _launch((program.python_module, *program.args))
    if launcher is None:
        return None
    variables = {variable.name: variable.value for variable in program.environment}
    gpus = group.accelerator.count if group.accelerator else 0
    value = _value_of(_RANKS_OPTIONS[launcher], options)
    if value is None and launcher == "torchrun":
        value = variables.get(_RANKS_VARIABLE, str(max(gpus, 1)))
    if value in ("gpu", "auto") and gpus and _VISIBLE_GPUS not in variables:
        return gpus
    return int(value) if value is not None and value.isdecimal() else None


def is_launched(program: Program) -> bool:
    """Return whether the command is a launcher, which starts ranks."""
    launcher, _ = _launch((program.python_module, *program.args))
    return launcher is not None


def _launch(command: Sequence[str]) -> tuple[str | None, Sequence[str]]:
    """Return the launcher that these words call, and its own options; None: they call none.

    The options of the program behind them may have the same names, so it is the end of the search.
    Behind `--no-python`, a program that is not Python's looks like the value of an option.
    """
    if not _OTHER_PROGRAM.isdisjoint(command):
        return None, ()
    for index, word in enumerate(command):
        name = word.rpartition("/")[2]
        rest = command[index + 1 :]
        if name in _TORCHRUN:
            return "torchrun", list(takewhile(_is_before_program, rest))
        if name == "accelerate" and rest[:1] == ("launch",):
            return "accelerate", list(takewhile(_is_before_program, rest))
        if name.endswith(".py"):
            break  # what follows are the arguments of a program
    return None, ()


def _is_before_program(word: str) -> bool:
    return word not in ("-m", "--module") and not word.endswith(".py")


def _value_of(option: re.Pattern[str], words: Sequence[str]) -> str | None:
    """Return the value of an option; None: it is not given."""
    for word, following in pairwise((*words, "")):
        if found := option.fullmatch(word):
            return found[1] or following
    return None


def ranks_that_left(event: ReplicaExited, ranks: int | None) -> str:
    """Return which ranks had exited 0 when another one lost them, as the subject of a sentence:
    `All other ranks` or `2 of the 4 ranks`. Empty: none is known to have.

    `ranks`: those that the launcher had started; None if that is not known. In a job of several
    machines, the peer that was lost may be elsewhere.
    """
    error = event.error
    if error is None or not reports_lost_peer(event) or not is_of_collective(error):
        return ""
    # An output that is cut after the error may lack a rank that torchrun had to end.
    _, is_whole, report = event.tail.partition(error.headline)
    if not is_whole:
        return ""
    ended = set(_ENDED_RANK.findall(report))
    if _NO_OTHER_FAILURE in report and not ended:
        return "All other ranks"
    failed = set(_FAILED_RANK.findall(report))
    # The silent peer may be one that torchrun had to end: it hung, and had not left.
    may_hang = bool(ended) and reports_silent_peer(event)
    left = (ranks or 0) - len(failed | ended)
    return f"{left} of the {ranks} ranks" if failed and left > 0 and not may_hang else ""


def is_of_collective(error: ProgramError) -> bool:
    """Whether the program was waiting for other ranks, and not for a service."""
    return _COLLECTIVE in error.frame or "gloo/" in error.message
