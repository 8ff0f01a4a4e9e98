"""`trainmaster orphans`."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from tests.integration.cli.conftest import Installation
from trainmaster.ports import Orphan

ORPHAN = Orphan(
    "4711",
    "tm-gone-1-a1b2c3d4e5f60718-worker-0",
    "us-central1-a",
    "gone_1",
    datetime(2026, 11, 21, 3, 0, tzinfo=UTC),
)


def test_orphans_lists_reported_orphans_as_table_and_json(installation: Installation) -> None:
    assert json.loads(installation.run("orphans", "--format", "json").stdout) == []
    installation.store.report_orphan(ORPHAN)
    (listed,) = json.loads(installation.run("orphans", "--format", "json").stdout)
    assert (listed["name"], listed["instance_id"]) == (ORPHAN.name, "4711")
    assert ORPHAN.name in installation.run("orphans").stdout
