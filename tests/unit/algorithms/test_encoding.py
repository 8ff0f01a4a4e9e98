"""Numbers for XGBoost: the encoder of tables and the stored encoder of rows agree."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainmaster.algorithms.tabular import instance_generator
from trainmaster.algorithms.tabular.analysis import CategoryLimits, analyse
from trainmaster.algorithms.tabular.encoding import encode
from trainmaster.algorithms.tabular.instance_generator import encode_row
from trainmaster.algorithms.tabular.metadata import ColumnType, Metadata

LIMITS = CategoryLimits(vocabulary_max=3, buckets=4)
"""Columns with more than three categories are hashed."""
TABLE = pd.DataFrame(
    {
        0: ["a", "b"] * 6,
        1: ["1.5", "2.5", "3.5"] * 4,
        2: ["red", "blue", "red"] * 4,
        3: ["1", "2", "3", "2"] * 3,
        4: ["v", "w", "x", "y", "z", "v"] * 2,
        5: [str(n) for n in range(12)],
        6: ["EUR"] * 12,
    },
    dtype=str,
)
"""Columns: the target, numbers, texts, few whole numbers, many texts, a row identifier and a
constant.
"""
METADATA = analyse(TABLE, LIMITS, is_classification=True)
STORED = json.loads(METADATA.to_json())


def typed(cells: list[str], metadata: Metadata) -> pd.DataFrame:
    """Return a prepared table with one row."""
    row: dict[int, object] = {}
    for column in metadata.features:
        cell = cells[column.index - 1]
        is_number = column.type is ColumnType.NUMERICAL
        row[column.index] = (float(cell) if cell else column.statistics.mean) if is_number else cell
    return pd.DataFrame([row])


def test_row_is_encoded_as_numbers_and_one_hot_categories() -> None:
    assert encode_row(["1.5", "blue", "2", "v", "9", "EUR"], STORED)[:6] == [
        1.5,
        1.0,
        0.0,
        0.0,
        1.0,
        0.0,
    ]


def test_missing_cells_are_the_mean_and_zeros() -> None:
    assert encode_row(["", "", "", "", "", ""], STORED) == [2.5, *[0.0] * 9]


@given(
    st.sampled_from(["", "1.5", "-2"]),
    st.sampled_from(["", "red", "blue", "green"]),
    st.sampled_from(["", "1", "2", "7"]),
    st.text(st.characters(codec="utf-8", exclude_characters=" "), max_size=5),
)
def test_table_and_row_encoders_agree(number: str, colour: str, rooms: str, hashed: str) -> None:
    cells = [number, colour, rooms, hashed, "17", "EUR"]

    assert encode(typed(cells, METADATA), METADATA)[0].tolist() == encode_row(cells, STORED)


def test_row_with_another_number_of_columns_is_refused() -> None:
    with pytest.raises(ValueError, match="the row has 2 columns, and the training data had 6"):
        encode_row(["1.5", "red"], STORED)


def test_stored_generator_runs_alone(tmp_path: Path) -> None:
    """It is a client's file: it may import nothing of ours."""
    generator = tmp_path / "instance_generator.py"
    generator.write_bytes(Path(instance_generator.__file__).read_bytes())
    (tmp_path / "metadata.json").write_bytes(METADATA.to_json())
    (tmp_path / "rows.csv").write_text("1.5,red,1,v,3,EUR\n,,,,,\n")
    command = [sys.executable, "-I", str(generator), "metadata.json", "rows.csv"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)

    first, second = ran.stdout.splitlines()
    assert first.startswith("1.5,0.0,1.0,1.0,0.0,0.0,")
    assert second == "2.5,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0"
