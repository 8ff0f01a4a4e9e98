"""Lists of addresses as a rule in the metadata, and the agent's expansion of it."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.agent.model.vm_config import expand
from trainmaster.core.cluster.number_ranges import as_number_range


def test_numbered_names_are_a_rule() -> None:
    names = [
        f"tm-v2-3f2a1c5b7d9e8046-worker-{index}.us-central1-a.c.p2.internal:2222"
        for index in range(1000)
    ]
    rule = as_number_range(names)
    assert rule == {
        "head": "tm-v2-3f2a1c5b7d9e8046-worker-",
        "first": 0,
        "count": 1000,
        "tail": ".us-central1-a.c.p2.internal:2222",
    }
    assert expand(rule) == names


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(["localhost:10001", "localhost:10400", "localhost:10002"], id="ports"),
        pytest.param(["w-00", "w-01", "w-02"], id="leading zeros"),
        pytest.param(["w-0", "w-1", "w-3"], id="a gap"),
        pytest.param(["w-0", "w-1"], id="short"),
        pytest.param(["w", "w", "w"], id="no number"),
        pytest.param([], id="empty"),
    ],
)
def test_other_texts_stay_a_list(texts: list[str]) -> None:
    assert as_number_range(texts) == texts


@given(
    st.text("ab-01", max_size=4),
    st.integers(0, 120),
    st.integers(0, 30),
    st.text("ab-01", max_size=4),
)
def test_agent_expands_what_the_control_plane_sends(
    head: str, first: int, count: int, tail: str
) -> None:
    texts = [f"{head}{number}{tail}" for number in range(first, first + count)]
    assert expand(json.loads(json.dumps(as_number_range(texts)))) == texts


@given(st.lists(st.text("w01-", max_size=3), max_size=5))
def test_any_list_survives(texts: list[str]) -> None:
    assert expand(json.loads(json.dumps(as_number_range(texts)))) == texts
