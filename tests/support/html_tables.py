"""The tables of a page, as lists of cells: for tests that no column is empty or has no heading."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser


@dataclass
class Table:
    """The cells' texts of a table, row by row."""

    caption: str = ""
    headings: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def faults(self) -> list[str]:
        """Return the rows that have more or fewer cells than headings, and the empty columns."""
        width = len(self.headings)
        found = [
            f"{self.caption}: {len(row)} cells below {width} headings: {row}"
            for row in self.rows
            if len(row) != width
        ]
        if found or not self.rows:
            return found
        return [
            f"{self.caption}: the column {heading!r} is empty"
            for heading, *cells in zip(self.headings, *self.rows, strict=True)
            if not any(cells)
        ]


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tables: list[Table] = []
        self._part = ""
        self._texts: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.tables.append(Table())
        elif tag in ("thead", "tbody", "tfoot"):
            self._part = tag
        elif tag == "tr" and self._part == "tbody":
            self.tables[-1].rows.append([])
        elif tag in ("th", "td", "caption"):
            self._texts = []
        elif tag == "progress" and self._texts is not None:
            self._texts.append(str(dict(attrs).get("value")))

    def handle_endtag(self, tag: str) -> None:
        if tag not in ("th", "td", "caption") or self._texts is None:
            return
        text = " ".join("".join(self._texts).split())
        self._texts = None
        table = self.tables[-1]
        if tag == "caption":
            table.caption = text
        elif self._part == "thead":
            table.headings.append(text)
        elif self._part == "tbody":
            table.rows[-1].append(text)

    def handle_data(self, data: str) -> None:
        if self._texts is not None:
            self._texts.append(data)


def tables_of(page: str) -> list[Table]:
    """Return the tables of a page."""
    reader = _Reader()
    reader.feed(page)
    return reader.tables
