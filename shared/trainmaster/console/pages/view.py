"""The part of a job that its page shows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from urllib.parse import urlencode


@dataclass(frozen=True, slots=True)
class View:
    """The part of a job that its page shows, from the page's address."""

    replica: str = ""
    """Only decisions about this replica: `worker-1`."""
    with_ignored: bool = False
    """Ignored events, every capacity error, and the rules that did not apply."""
    with_all_replicas: bool = False
    """A lane for each replica, also above `timeline.LANES_MAX`."""
    with_whole_table: bool = False
    """A row for each replica in the table, also above `timeline.LANES_MAX`."""
    over_steps: bool = False
    """Draw the program's metrics over its steps, and not over time."""
    with_gaps: bool = False
    """Draw stretches without a change in full length."""
    start: str = ""
    """The timeline begins at this time (RFC 3339); empty: at the creation of the job."""
    end: str = ""
    """The timeline ends at this time; empty: at the end of the job, or now."""

    def query(self, **changes: object) -> str:
        """Return the query of the page with this view, some of it changed."""
        view = replace(self, **changes)  # type: ignore[arg-type]
        values = {
            "replica": view.replica,
            "all": "1" if view.with_ignored else "",
            "replicas": "1" if view.with_all_replicas else "",
            "table": "1" if view.with_whole_table else "",
            "gaps": "1" if view.with_gaps else "",
            "x": "step" if view.over_steps else "",
            "from": view.start,
            "to": view.end,
        }
        return urlencode({name: value for name, value in values.items() if value})
