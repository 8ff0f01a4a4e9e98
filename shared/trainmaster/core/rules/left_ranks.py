"""Ranks of one machine that ended before the others: a rank waits for them, and fails.

torchrun ends the ranks that still run when one has failed, and says so, one line for each. Then it
lists those that failed. If it had none to end and lists no other failure, all others had exited 0:

    RuntimeError: [...gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:31904
    ... failed (exitcode: 1) local_rank: 0 (pid: 32511) of binary: /usr/bin/python
    Failures:
      <NO_OTHER_FAILURES>

Source: torch/distributed/elastic/multiprocessing, api.py and errors/__init__.py.
"""

from __future__ import annotations

import re
from typing import Final

from trainmaster.core.events import ProgramError, ReplicaExited
from trainmaster.core.rules.evidence import reports_lost_peer

_ENDS_RANK: Final = re.compile(r"Sending process \d+ closing signal")
_NO_OTHER_FAILURE: Final = "<NO_OTHER_FAILURES>"
_COLLECTIVE: Final = "distributed_c10d.py"
"""File of PyTorch whose functions wait for other ranks."""


def were_left_by_ranks(event: ReplicaExited) -> bool:
    """Whether a rank lost a peer, and all other ranks of its machine had exited 0.

    In a job of several machines, the peer that it lost may be elsewhere.
    """
    error = event.error
    if error is None or not reports_lost_peer(event) or not _is_of_collective(error):
        return False
    # An output that is cut after the error may lack a rank that torchrun had to end.
    _, is_whole, report = event.tail.partition(error.headline)
    return bool(is_whole) and _NO_OTHER_FAILURE in report and not _ENDS_RANK.search(report)


def _is_of_collective(error: ProgramError) -> bool:
    """Whether the program was waiting for other ranks, and not for a service."""
    return _COLLECTIVE in error.frame or "gloo/" in error.message
