"""No hostile input ends in an unexpected error, or costs more than its budget.

`make soak` tries many more.
"""

from __future__ import annotations

import json
from http import HTTPStatus

import pytest

from tests.fuzz.entrances import entrances
from tests.fuzz.run import fuzz
from trainmaster.jobspec.foreign.answer import ForeignFile

SECONDS = 2.0
INPUTS = 150


@pytest.mark.parametrize("name", list(entrances()))
def test_hostile_input_is_accepted_or_refused_within_its_budget(name: str) -> None:
    report = fuzz(name, seed=0, seconds=SECONDS, inputs_max=INPUTS)
    assert report.defects == []
    assert report.inputs


def data_of(seed: object) -> bytes:
    return seed if isinstance(seed, bytes) else json.dumps(seed).encode()


@pytest.mark.parametrize(
    "name", [name for name, entrance in entrances().items() if entrance.calls is None]
)
def test_inputs_are_made_of_documents_that_the_entrance_accepts(name: str) -> None:
    """Otherwise the first check would refuse all inputs, and no other would see one."""
    entrance = entrances()[name]
    for seed in entrance.seeds:
        try:
            entrance.read(data_of(seed))
        except ForeignFile:
            continue  # a task of another tool is converted to the end, and the answer is an error


@pytest.mark.parametrize(
    "name", [name for name, entrance in entrances().items() if entrance.calls is not None]
)
def test_each_request_page_and_form_accepts_some_input(name: str) -> None:
    """An outdated session, field or mask would refuse all inputs before they are parsed."""
    entrance = entrances()[name]
    assert entrance.calls is not None
    best: dict[str, int] = {}
    for seed in entrance.seeds:
        for call, visit in entrance.calls(data_of(seed)).items():
            best[call] = min(best.get(call, HTTPStatus.INTERNAL_SERVER_ERROR), visit())
    refused = {call: status for call, status in best.items() if status >= HTTPStatus.BAD_REQUEST}
    assert refused == {}
