"""Errors of programs, the states of a job with replicas that are judged alone, and rows of
decisions, for the tests of such exits.
"""

from __future__ import annotations

from tests.support.alone import a_job, a_plan, a_state
from tests.support.jobs import CHIEF, a_replica, at
from trainmaster.core.events import ProgramError

NOW = at(100)
OWN = "trainer/task.py:41 in main"
"""A line of the job's own code, not of a library."""
BUG = ProgramError("ValueError", "bad shape", OWN, OWN)
TENSORFLOW_PEER_LOSS = ProgramError(
    "tensorflow.python.framework.errors_impl.UnavailableError", "{{node x}}", "ops.py:12 in execute"
)
GLOO_PEER_LOSS = ProgramError(
    "RuntimeError",
    "[gloo/transport/tcp/pair.cc:534] Connection closed by peer",
    "c10d.py:9 in all_reduce",
)
"""Two errors that say that another replica went away, which is no fault of this one."""

RUNNING = a_state()
ONE_VM = a_state(a_replica(CHIEF), job=a_job(plan=a_plan(workers=0)))
RESTARTED = "10 restart_replica non_zero_exit"
"""The number of the rule, its action and its reason, as `tests.support.decisions` compares them."""
