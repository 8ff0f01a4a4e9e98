"""What belongs to no job, by command line."""

from __future__ import annotations

import json
from datetime import UTC, datetime

from shared.ports import Orphan
from tests.integration.cli.conftest import Installation

FOUND = Orphan("4711", "tm-gone-1-a1b2c3-worker-0", "us-central1-a", "gone_1", datetime(2026, 11, 21, 3, 0, tzinfo=UTC))


def test_what_was_found_is_told(installation: Installation) -> None:
    assert json.loads(installation.run("orphans", "--format", "json").stdout) == []
    installation.store.report_orphan(FOUND)
    (told,) = json.loads(installation.run("orphans", "--format", "json").stdout)
    assert (told["name"], told["instance_id"]) == (FOUND.name, "4711")
    assert FOUND.name in installation.run("orphans").stdout
