"""No hostile input ends in an unexpected error, or costs more than its budget.

`make soak` tries many more.
"""

from __future__ import annotations

import json

import pytest

from tests.fuzz.entrances import ENTRANCES
from tests.fuzz.run import ACCEPTED, fuzz
from trainmaster.jobspec.foreign.answer import ForeignFile

SECONDS = 2.0
INPUTS = 100


@pytest.mark.parametrize("name", ENTRANCES)
def test_hostile_input_is_accepted_or_refused_within_its_budget(name: str) -> None:
    report = fuzz(name, seed=0, seconds=SECONDS, inputs_max=INPUTS)
    assert report.defects == []
    assert report.kinds[ACCEPTED]


@pytest.mark.parametrize("name", ENTRANCES)
def test_inputs_are_made_of_documents_that_the_entrance_accepts(name: str) -> None:
    """Otherwise the first check, an outdated session or an unknown field would refuse all inputs,
    and no other check would see one.
    """
    entrance = ENTRANCES[name]()
    for seed in entrance.seeds:
        try:
            entrance.read(seed if isinstance(seed, bytes) else json.dumps(seed).encode())
        except ForeignFile:
            continue  # a task of another tool is converted to the end, and the answer is an error
