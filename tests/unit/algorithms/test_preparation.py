"""From CSV files to tables: reading, splitting, dropping and filling."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.algorithms.tables import values_of, write_csv
from trainmaster.algorithms.errors import DataError
from trainmaster.algorithms.tabular.analysis import ONE_HOT
from trainmaster.algorithms.tabular.preparation import Prepared, prepare

ROWS = [f"{'ab'[n % 2]},{n / 2 + 0.25},{'red' if n % 3 else 'blue'}" for n in range(100)]
"""Lines of a CSV file: a class, a number and a category."""
SPLIT_NOTHING = ("--validation_split=0", "--test_split=0")


def prepared(
    folder: Path, lines: list[str], *arguments: str, is_classification: bool = True
) -> Prepared:
    values = values_of(
        "linear_learner", write_csv(folder, lines), "--model_type=classification", *arguments
    )
    return prepare(values, ONE_HOT, is_classification=is_classification)


def lengths(parts: Prepared) -> tuple[int, int, int]:
    """Return the numbers of rows for training, validation and test."""
    return (
        len(parts.tables["training"]),
        len(parts.tables["validation"]),
        len(parts.tables["test"]),
    )


def test_rows_are_split_by_the_shares_and_each_is_used_once(tmp_path: Path) -> None:
    parts = prepared(tmp_path, ROWS, "--preprocess", "--validation_split=0.1", "--test_split=0.3")

    assert lengths(parts) == (60, 10, 30)
    numbers = [
        number for name in ("training", "validation", "test") for number in parts.tables[name][1]
    ]
    assert sorted(numbers) == [n / 2 + 0.25 for n in range(100)]


def test_split_is_the_same_after_a_restart(tmp_path: Path) -> None:
    first, second = (prepared(tmp_path, ROWS, "--preprocess") for _ in range(2))

    assert first.tables["test"].equals(second.tables["test"])


def test_without_preprocess_nothing_is_split(tmp_path: Path) -> None:
    parts = prepared(tmp_path, ROWS)

    assert lengths(parts) == (100, 0, 0)


def test_file_replaces_the_split(tmp_path: Path) -> None:
    other = write_csv(tmp_path, ROWS[:7], "validation.csv")
    parts = prepared(
        tmp_path, ROWS, "--preprocess", f"--validation_data_path={other}", "--test_split=0.2"
    )

    assert lengths(parts) == (80, 7, 20)


def test_missing_number_is_filled_with_the_mean_and_missing_category_stays_empty(
    tmp_path: Path,
) -> None:
    def others(n: int) -> str:
        """Return further cells of a row, enough that one missing cell is less than a tenth."""
        return ",".join([f"{n % 7}.5"] * 9)

    complete = [f"{'ab'[n % 2]},{n}.0,{'xy'[n % 2]},{others(n)}" for n in range(8)]
    without_number, without_category = f"a,,x,{others(0)}", f"b,3.0,,{others(0)}"
    lines = [*complete, without_number, without_category]
    training = prepared(tmp_path, lines, "--preprocess", *SPLIT_NOTHING).tables["training"]

    numbers = [*range(8), 3]
    assert training[1][lines.index(without_number)] == pytest.approx(sum(numbers) / len(numbers))
    assert training[2][lines.index(without_category)] == ""


def test_row_with_more_than_a_tenth_missing_is_dropped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = prepared(tmp_path, [*ROWS, "a,,red", ",4.5,red"], "--preprocess", *SPLIT_NOTHING)

    assert len(parts.tables["training"]) == 100
    assert "dropped 2 of 102 rows" in capsys.readouterr().out


def test_missing_value_without_preprocess_is_refused_with_its_column(tmp_path: Path) -> None:
    with pytest.raises(
        DataError, match="column 2 of the training data misses 1 of 101 values; --preprocess"
    ):
        prepared(tmp_path, [*ROWS, "a,,red"])


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param("c,1.5,red", "the validation data have the class 'c'", id="an unknown class"),
        pytest.param(
            "a,many,red",
            "column 2 of the validation data has the value 'many'",
            id="text among numbers",
        ),
        pytest.param("a,1.5", r"has 2 columns, and .* has 3", id="a column less"),
    ],
)
def test_validation_data_unlike_the_training_data_are_refused(
    line: str, expected: str, tmp_path: Path
) -> None:
    other = write_csv(tmp_path, [line], "validation.csv")

    with pytest.raises(DataError, match=expected):
        prepared(tmp_path, ROWS, f"--validation_data_path={other}")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["label,size,colour", *ROWS], "has a header: column 2 is 'size' and numbers below"),
        (["a,1", "b,2,3"], "is not a CSV file with the same columns"),
        (["a", "b"], "has one column"),
        ([], "is empty"),
    ],
)
def test_file_of_another_form_is_refused(lines: list[str], expected: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=expected):
        prepared(tmp_path, lines)


def test_missing_file_is_refused(tmp_path: Path) -> None:
    values = values_of(
        "linear_learner", str(tmp_path / "absent.csv"), "--model_type=classification"
    )

    with pytest.raises(DataError, match=r"absent\.csv does not exist"):
        prepare(values, ONE_HOT, is_classification=True)


CELL = st.sampled_from(["", "1", "2", "x", "y z", "3.5", "-1e3", "ä"])
LINES = st.integers(2, 5).flatmap(
    lambda width: st.lists(st.lists(CELL, min_size=width, max_size=width), min_size=1, max_size=30)
)


@given(LINES)
def test_any_table_is_prepared_without_missing_values_or_refused(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[str]]
) -> None:
    """A table is either refused with a DataError, or all its tables are complete."""
    folder = tmp_path_factory.mktemp("any")
    try:
        parts = prepared(folder, [",".join(row) for row in rows], "--preprocess")
    except DataError:
        return
    features = [column.index for column in parts.metadata.features]
    for name in ("training", "validation", "test"):
        table = parts.tables[name]
        assert not table.isna().any(axis=None)
        assert set(table.columns) == {0, *features}
    assert sum(lengths(parts)) <= len(rows)
