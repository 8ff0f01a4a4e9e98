"""Firestore operations and invocations of one job from its submission to its end: a + b * N for N replicas."""

from __future__ import annotations

import pytest

from bench.cloud import Emulators
from bench.job_cost import Cost, run_job


@pytest.mark.parametrize("size", [3, 8, 20])
def test_cost_of_a_job_is_exactly_linear_in_its_replicas(size: int, firestore_emulator: str) -> None:
    """As docs/benchmarks.md states it. Deletes are those of leases."""
    with Emulators(firestore_emulator).project() as project:
        cost = run_job(project, size)
    assert cost == Cost(reads=24 + 13 * size, writes=12 + 6 * size, deletes=3, invocations=2 + 3 * size)
