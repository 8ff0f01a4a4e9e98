"""docs/rules.md says in which order the rules of an exit are judged."""

from __future__ import annotations

import re
from pathlib import Path

from trainmaster.core.decisions import Rule
from trainmaster.core.rules.replica_exit import ROWS

PAGE = Path(__file__).parents[3] / "docs" / "rules.md"
ROW = re.compile(r"(?m)^\| (\d+) \| (\d*) ?\| `")


def test_column_order_has_the_rows_of_an_exit() -> None:
    orders = {
        int(order): Rule(int(rule))
        for rule, order in ROW.findall(PAGE.read_text(encoding="utf-8"))
        if order
    }
    assert orders == {order: row.rule for order, row in enumerate(ROWS, start=1)}


def test_table_has_a_row_for_every_rule() -> None:
    named = {int(rule) for rule, _ in ROW.findall(PAGE.read_text(encoding="utf-8"))}
    assert named == {int(rule) for rule in Rule if rule}
