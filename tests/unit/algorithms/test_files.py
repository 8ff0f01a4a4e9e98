"""Files and folders of an algorithm, local ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster.algorithms.errors import DataError
from trainmaster.algorithms.files import (
    find_files,
    read_file,
    read_folder,
    write_file,
    write_folder,
)


def test_pattern_names_all_matching_files_in_order(tmp_path: Path) -> None:
    for name in ("b.csv", "a.csv", "a.txt", "deep/c.csv"):
        write_file(str(tmp_path / name), b"x")

    found = [
        Path(path).relative_to(tmp_path).as_posix() for path in find_files(f"{tmp_path}/*.csv")
    ]
    assert found == ["a.csv", "b.csv", "deep/c.csv"]


def test_pattern_without_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no file matches"):
        find_files(f"{tmp_path}/*.csv")


def test_folder_is_written_and_read_again(tmp_path: Path) -> None:
    write_file(str(tmp_path / "from" / "deep" / "x"), b"1")
    write_folder(tmp_path / "from", str(tmp_path / "to"))

    assert read_folder(str(tmp_path / "to"), tmp_path / "back")
    assert read_file(str(tmp_path / "back" / "deep" / "x")) == b"1"
    assert not read_folder(str(tmp_path / "absent"), tmp_path / "back")
