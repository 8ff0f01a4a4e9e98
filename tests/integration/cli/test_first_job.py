"""Runs the commands that `terraform apply` shows to the user at its end (infra/outputs.tf)."""

from __future__ import annotations

import re
import shlex

import pytest

from tests.integration.cli.conftest import Installation
from trainmaster.core.model.job import JobState
from trainmaster_emulators.checkout import ROOT

VALUES = {"var.project": "my-project", "google_storage_bucket.this.name": "the-bucket"}
REGION = "europe-west4"


def commands() -> list[list[str]]:
    text = (ROOT / "infra" / "outputs.tf").read_text(encoding="utf-8")
    (block,) = re.findall(r"(?s)<<-EOT\n(.*?)\n *EOT", text)
    filled = re.sub(r"\$\{([^}]+)\}", lambda match: VALUES.get(match[1], REGION), block)
    return [shlex.split(line) for line in filled.splitlines()]


def test_command_of_the_first_job_submits_it_with_its_package(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    (words,) = [words for words in commands() if words[:2] == ["trainmaster", "submit"]]
    assert words[-1] == "--stream-logs", "it waits for VMs, and is left out here"
    result = installation.run(*words[1:-1])
    assert result.exit_code == 0, result.output
    (job,) = installation.store.recent_jobs(2)
    assert (job.job_id, job.state) == ("digits_1", JobState.QUEUED)
    assert job.plan.where.region == REGION
    assert job.plan.program.job_dir == "gs://the-bucket/digits"
    (package,) = job.plan.program.package_uris
    assert package.startswith("gs://the-bucket/"), (
        "the job file names the bucket of the local stack"
    )
    assert installation.objects.read(package.partition("#")[0], max_bytes=1 << 20)


def test_commands_use_only_documented_programs() -> None:
    assert {words[0] for words in commands()} == {"cd", "export", "trainmaster", "gcloud"}
