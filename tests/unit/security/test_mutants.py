"""Mutants that still are some: each one's text stands in its file, once. `make mutants` sees that tests kill them."""

from __future__ import annotations

from pathlib import Path

from tests.mutants import MUTANTS, ROOT


def test_each_mutants_text_stands_in_its_file_once() -> None:
    texts = {name: (ROOT / name).read_text(encoding="utf-8") for name in {mutant.file for mutant in MUTANTS}}
    assert [mutant.story for mutant in MUTANTS if texts[mutant.file].count(mutant.old) != 1] == []


def test_each_mutant_changes_something_has_a_story_of_its_own_and_tests_that_are_there() -> None:
    assert [mutant.story for mutant in MUTANTS if mutant.old == mutant.new] == []
    assert len({mutant.story for mutant in MUTANTS}) == len(MUTANTS)
    assert [path for mutant in MUTANTS for path in mutant.tests if not Path(ROOT / path).exists()] == []
