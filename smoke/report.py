"""The result of a run as text: the steps, then each assumption with what was expected and what was
seen.

A *step* is something that the smoke test did on Google Cloud, and an *assumption* what Trainmaster
relies on there. A *finding* says whether an assumption was right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from smoke.findings import Finding, Verdict
from smoke.steps import Outcome, Result


def lines(results: Sequence[Result], findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the result in Markdown, so that it can be put into a page or an issue as it is."""
    yield from _table(
        ("step", "result", ""), [(row.name, row.outcome.value, row.text) for row in results]
    )
    yield ""
    verdicts = list(Verdict)
    by_verdict = sorted(findings, key=lambda row: verdicts.index(row.verdict))
    yield from _table(
        ("", "assumption", "expected", "seen", "documented in"),
        [_finding_cells(row) for row in by_verdict],
    )
    yield ""
    numbers = Counter(row.verdict for row in findings)
    counts = ", ".join(f"{numbers[verdict]} {verdict}" for verdict in verdicts)
    failed = [row.name for row in results if row.outcome is Outcome.FAILED]
    yield f"Assumptions: {counts}. Failed steps: {', '.join(failed) or 'none'}."


def _finding_cells(row: Finding) -> tuple[str, ...]:
    """Return the finding as a row of the second table."""
    return (
        row.verdict.value,
        row.assumption.text,
        row.assumption.expected,
        row.seen,
        ", ".join(row.assumption.sources),
    )


def exit_status(results: Sequence[Result], findings: Sequence[Finding]) -> int:
    """Return 0 if no step failed and no assumption is wrong.

    An assumption that was not seen counts as neither.
    """
    is_wrong = any(row.verdict is Verdict.DIFFERENT for row in findings)
    return int(is_wrong or any(row.outcome is Outcome.FAILED for row in results))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines of a table whose columns are aligned."""
    cells = [[_cell(text) for text in row] for row in (heads, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(heads))]
    cells.insert(1, ["-" * max(width, 3) for width in widths])  # Markdown needs three
    for row in cells:
        padded = [text.ljust(width) for text, width in zip(row, widths, strict=True)]
        yield f"| {' | '.join(padded)} |"


def _cell(text: str) -> str:
    """Return the text as one line that does not end the cell."""
    return " ".join(text.split()).replace("|", "\\|")
