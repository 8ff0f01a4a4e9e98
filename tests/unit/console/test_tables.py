"""Tables of all pages: each row has a cell for each heading, and no column is empty."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.console_browser import (
    JOB_PATHS,
    add_progress,
    compared_world,
    failed_world,
    log_entry,
    running_world,
    tuning_world,
)
from tests.support.console_site import Site
from tests.support.html_tables import Table, tables_of
from tests.support.job_lists import world_of_jobs
from tests.support.world import World

PATHS = (*JOB_PATHS, "/compare?job=digits_1&job=digits_2", "/jobs/digits_1-trial-1")


def submitted_world() -> World:
    world = World()
    world.submit()
    return world


def listed_world() -> World:
    return world_of_jobs(8)


@pytest.mark.parametrize(
    "make_world",
    [submitted_world, running_world, failed_world, compared_world, tuning_world, listed_world],
)
def test_each_row_has_a_cell_for_each_heading_and_no_column_is_empty(
    make_world: Callable[[], World],
) -> None:
    site = Site(make_world())
    site.entries = [log_entry("INFO", "worker-replica-0")]
    if site.world.store.load("digits_1") and make_world in (running_world, compared_world):
        add_progress(site, "digits_1", {"metric/loss": [3.0, 2.0], "share": [0.1, 0.2]})
    site.open()
    shown: list[Table] = []
    for path in PATHS:
        response = site.get(path)
        shown += tables_of(response.text) if response.status_code == 200 else []
    assert any(table.rows for table in shown)
    assert [fault for table in shown for fault in table.faults()] == []


def test_row_that_ends_early_and_an_empty_column_are_found() -> None:
    early = "<table><caption>T</caption><thead><tr><th>A</th><th>B</th></tr></thead>"
    rows = "<tbody><tr><td>1</td></tr></tbody></table>"
    assert tables_of(early + rows)[0].faults() == ["T: 1 cells below 2 headings: ['1']"]
    empty = "<tbody><tr><td>1</td><td> </td></tr></tbody></table>"
    assert tables_of(early + empty)[0].faults() == ["T: the column 'B' is empty"]
