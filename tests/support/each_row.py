"""Run one test for each row of a table, as a single item.

pytest takes 5 ms for an item, and collects all of them in every process. For a table of a hundred
rows that need nothing of their own, that is more than the checks themselves take.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., None]


def each_row(
    names: str, rows: Iterable[Any], ids: Iterable[object] | None = None
) -> Callable[[Test], Test]:
    """Replace `pytest.mark.parametrize` where all rows may share their fixtures.

    The failure names each wrong row.
    """
    arguments = [name.strip() for name in names.split(",")]
    table = [_values(row, len(arguments)) for row in rows]
    assert table, "the table is empty"
    texts = [_text(row) for row in table] if ids is None else list(map(str, ids))

    def decorate(test: Test) -> Test:
        @wraps(test)
        def run(**fixtures: Any) -> None:
            failures = []
            for row, text in zip(table, texts, strict=True):
                try:
                    test(**dict(zip(arguments, row, strict=True)), **fixtures)
                except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - raised after the last row
                    error.add_note(f"in the row {text}")
                    failures.append(error)
            if len(failures) > 1:
                raise BaseExceptionGroup(f"{len(failures)} of {len(table)} rows", failures)
            if failures:
                raise failures[0]

        signature = inspect.signature(test)
        others = [one for name, one in signature.parameters.items() if name not in arguments]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        return run

    return decorate


def _values(row: Any, count: int) -> tuple[Any, ...]:
    return (row,) if count == 1 else tuple(row)


def _text(row: tuple[Any, ...]) -> str:
    return ", ".join(getattr(value, "__name__", str(value))[:200] for value in row)
