"""The table of assumptions in docs/smoke.md, from smoke/assumptions.yaml."""

from __future__ import annotations

from smoke.assumptions import ASSUMPTIONS


def table() -> str:
    """Return one row for each fact about Google Cloud that the smoke test compares."""
    head = (
        "| assumption | expected | how the smoke test sees it | documented in |\n"
        "| --- | --- | --- | --- |\n"
    )
    return head + "".join(
        f"| {_cell(row.text)} | {_cell(row.expected)} | {_cell(row.read_from)} |"
        f" {', '.join(f'`{source}`' for source in row.sources)} |\n"
        for row in ASSUMPTIONS
    )


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
