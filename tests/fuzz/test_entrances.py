"""No hostile input ends in an unexpected error, or costs more than its budget.

`make soak` tries many more.
"""

from __future__ import annotations

import pytest

from tests.fuzz.entrances import entrances
from tests.fuzz.run import fuzz

SECONDS = 2.0
INPUTS = 150


@pytest.mark.parametrize("name", list(entrances()))
def test_hostile_input_is_accepted_or_refused_within_its_budget(name: str) -> None:
    report = fuzz(name, seed=0, seconds=SECONDS, inputs_max=INPUTS)
    assert report.defects == []
    assert report.inputs
