"""Whom a round charges, if runtimes report in their own words that they lost a peer.

The errors are those of a corpus, each with its source: a public report, or a package with its
version and file. The member that caused the loss left no traceback, as a process that was killed
beside its launcher, so only the words of its peers show whose failure it was.

`held(n)` is a job of three members whose round n awaits the verdict on the round before;
`judge_held` is this verdict, on the given ends (`tests.support.held_rounds`).
"""

from __future__ import annotations

from typing import Final

import pytest

from tests.support.decisions import action_of
from tests.support.error_corpus import LabelledError, read_corpus
from tests.support.held_rounds import held, judge_held
from tests.support.jobs import CHIEF, WORKER_0, a_replica, exited
from trainmaster.core.actions import BeginRound
from trainmaster.core.events import ProgramError
from trainmaster.core.rules.evidence import rank_of
from trainmaster.program_errors.meaning import Meaning

OWN: Final = "trainer/task.py:41 in main"
LOSSES: Final = [
    error for error in read_corpus() if error.label in (Meaning.LOST_PEER, Meaning.SILENT_PEER)
]
BY_WORDS: Final = [
    (
        "tensorflow.python.framework.errors_impl.InternalError",
        (
            "Collective ops is aborted by: internal\nThe error could be from a previous operation."
            " Restart your program to reset."
        ),
    ),
    ("RuntimeError", "The actor is dead because its node has died. Node Id: 56b97436e673"),
]
"""Words of which one row alone knows the meaning. Sources: base_collective_executor.cc of
TensorFlow, gcs_actor_manager.cc of Ray.
"""
BY_TYPE: Final = (
    "tensorflow.python.framework.errors_impl.DeadlineExceededError",
    "torch.distributed.DistBackendError",
    "torch.distributed.DistNetworkError",
    "torch.distributed.DistStoreError",
    "torch.distributed.elastic.rendezvous.api.RendezvousClosedError",
    "ray.exceptions.NodeDiedError",
    "ConnectionError",
    "ConnectionResetError",
    "ConnectionRefusedError",
    "BrokenPipeError",
)
"""Types that report a lost peer whatever the words are: a version may change its words."""
OF_ANY_NETWORK: Final = [
    ("TimeoutError", "[Errno 110] Connection timed out"),
    ("OSError", "[Errno 113] No route to host"),
    ("grpc._channel._InactiveRpcError", "status = StatusCode.UNAVAILABLE"),
    ("grpc.aio._call.AioRpcError", "StatusCode.DEADLINE_EXCEEDED Deadline Exceeded"),
]
"""Words of a service as well as of a peer: a storage that does not answer is no lost peer."""


def charged(error_type: str, message: str, causes: tuple[str, ...] = ()) -> str | None:
    """Return the member that pays, if the chief reports this error and worker 0 was killed."""
    error = ProgramError(error_type, message, OWN, OWN, causes)
    ends = [exited(CHIEF, 1, error=error, seconds=50), exited(WORKER_0, 1, seconds=52)]
    ends.sort(key=lambda end: (rank_of(end), end.at))
    return action_of(judge_held(held(), *ends), BeginRound).replica


@pytest.mark.parametrize("error", LOSSES, ids=lambda error: f"{error.type}: {error.message[:60]}")
def test_chief_that_reports_a_lost_peer_is_not_charged(error: LabelledError) -> None:
    assert charged(error.type, error.message, error.causes) == a_replica(WORKER_0).key


@pytest.mark.parametrize(
    ("error_type", "message"), [*BY_WORDS, *((name, "in other words") for name in BY_TYPE)]
)
def test_words_or_type_alone_speak_for_a_lost_peer(error_type: str, message: str) -> None:
    assert charged(error_type, message) == a_replica(WORKER_0).key


@pytest.mark.parametrize(("error_type", "message"), OF_ANY_NETWORK)
def test_words_of_any_network_speak_for_no_peer(error_type: str, message: str) -> None:
    assert charged(error_type, message) == a_replica(CHIEF).key
