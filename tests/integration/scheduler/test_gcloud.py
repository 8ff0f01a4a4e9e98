"""The real `gcloud scheduler jobs` against the emulator."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.integration.scheduler.conftest import PROJECT, Emulator, Target
from tests.support.gcloud import gcloud_environment, run_gcloud
from tests.support.stack import eventually

pytestmark = pytest.mark.slow

LOCATION = "--location=us-central1"


def test_gcloud_creates_changes_runs_and_deletes_jobs(
    emulator: Emulator, target: Target, tmp_path: Path
) -> None:
    environment = gcloud_environment(tmp_path, PROJECT, {"cloudscheduler": emulator.address})

    def gcloud(*arguments: str) -> subprocess.CompletedProcess[str]:
        return run_gcloud("scheduler", "jobs", *arguments, LOCATION, environment=environment)

    def succeed(*arguments: str) -> str:
        done = gcloud(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    succeed(
        "create", "pubsub", "nightly", "--schedule=0 3 * * *", "--topic=jobs", "--message-body={}"
    )
    account = f"--oauth-service-account-email=nightly@{PROJECT}.iam.gserviceaccount.com"
    succeed(
        "create",
        "http",
        "call",
        "--schedule=0 4 * * *",
        f"--uri={target.url}/x",
        "--message-body={}",
        account,
        "--max-retry-attempts=2",
        "--time-zone=Europe/Berlin",
    )
    listed = {
        job["name"].rpartition("/")[2]: job for job in json.loads(succeed("list", "--format=json"))
    }
    assert {name: job["state"] for name, job in listed.items()} == {
        "nightly": "ENABLED",
        "call": "ENABLED",
    }
    assert listed["call"]["scheduleTime"] == "2026-11-21T03:00:00Z"
    succeed("update", "pubsub", "nightly", "--schedule=30 3 * * *")
    described = json.loads(succeed("describe", "nightly", "--format=json"))
    assert (described["schedule"], described["pubsubTarget"]["topicName"]) == (
        "30 3 * * *",
        f"projects/{PROJECT}/topics/jobs",
    )
    succeed("run", "call")
    eventually(lambda: [request.path for request in target.received] == ["/x"])
    succeed("pause", "call")
    assert "PAUSED" in succeed("describe", "call")
    succeed("resume", "call")
    for name in ("nightly", "call"):
        succeed("delete", name)
    missing = gcloud("describe", "call")
    assert missing.returncode == 1
    assert "NOT_FOUND" in missing.stderr
    refused = gcloud(
        "create", "pubsub", "bad", "--schedule=sometimes", "--topic=jobs", "--message-body={}"
    )
    assert "schedule: Schedule or time zone is invalid" in refused.stderr
