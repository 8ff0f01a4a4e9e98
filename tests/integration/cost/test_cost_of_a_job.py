"""Firestore operations and invocations of one job from its submission to its end: a + b * N for N replicas."""

from __future__ import annotations

import pytest

from bench.cloud import Emulators
from bench.job_cost import Cost, Line, run_job

COST = Line(
    constant=Cost(reads=24, writes=12, deletes=3, invocations=2),
    slope=Cost(reads=13, writes=6, deletes=0, invocations=3),
)
"""As docs/benchmarks.md states it. Deletes are those of leases."""


@pytest.mark.parametrize("size", [3, 8, 20])
def test_cost_of_a_job_is_exactly_linear_in_its_replicas(
    size: int, firestore_emulator: str, pubsub_emulator: str
) -> None:
    with Emulators(firestore_emulator, pubsub_emulator).project() as project:
        assert run_job(project, size) == COST.at(size)
