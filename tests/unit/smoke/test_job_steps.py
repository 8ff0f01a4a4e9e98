"""What the smoke test's step with a second region notes: whether the job ran there."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from smoke import job_steps
from smoke.world import SkippedError
from tests.unit.smoke.test_run import a_world


@pytest.mark.parametrize(
    ("zone", "seen"), [("us-east1-b", "ran"), ("us-central1-b", "ran in us-central1-b")]
)
def test_zone_of_the_vm_shows_whether_the_job_ran_in_its_region(
    zone: str, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[dict[str, Any]] = []

    def submit(_world: object, document: dict[str, Any], _name: str) -> str:
        submitted.append(document)
        return "region_1"

    fleet = SimpleNamespace(list_vms=lambda _: [SimpleNamespace(zone=zone)])
    world = replace(a_world(), second_region="us-east1", fleet=cast(Any, fleet))
    monkeypatch.setattr(job_steps, "submit_by_upload", submit)
    monkeypatch.setattr(job_steps, "wait_for_success", lambda *_: None)
    monkeypatch.setattr("smoke.submissions.package_staging.stage", lambda **_: [])
    job_steps.run_in_second_region(world)
    assert submitted[0]["trainingInput"]["region"] == "us-east1"
    assert world.facts["second_region"] == seen


def test_step_without_a_second_region_is_skipped() -> None:
    with pytest.raises(SkippedError, match="us-central1"):
        job_steps.run_in_second_region(a_world())
