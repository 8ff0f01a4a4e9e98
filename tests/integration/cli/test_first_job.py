"""What `terraform apply` tells people to type next is typed here, as it stands in infra/outputs.tf."""

from __future__ import annotations

import re
import shlex

import pytest

from emulators.stack.state import ROOT
from shared.core.model.job import JobState
from tests.integration.cli.conftest import Installation

VALUES = {"var.project": "my-project", "google_storage_bucket.this.name": "the-bucket"}
REGION = "europe-west4"


def commands() -> list[list[str]]:
    text = (ROOT / "infra" / "outputs.tf").read_text(encoding="utf-8")
    (block,) = re.findall(r"(?s)<<-EOT\n(.*?)\n *EOT", text)
    said = re.sub(r"\$\{([^}]+)\}", lambda found: VALUES.get(found[1], REGION), block)
    return [shlex.split(line) for line in said.splitlines()]


def test_the_first_job_is_submitted_with_its_package(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    (words,) = [words for words in commands() if words[:2] == ["trainmaster", "submit"]]
    assert words[-1] == "--stream-logs", "which waits for machines, and so is left out here"
    done = installation.run(*words[1:-1])
    assert done.exit_code == 0, done.output
    (job,) = installation.store.recent_jobs(2)
    assert (job.job_id, job.state) == ("digits_1", JobState.QUEUED)
    assert job.plan.region == REGION
    assert job.plan.program.job_dir == "gs://the-bucket/digits"
    (package,) = job.plan.program.package_uris
    assert package.startswith("gs://the-bucket/"), "not the job file's own, which is the local stack's"
    assert installation.objects.read(package, max_bytes=1 << 20)


def test_they_are_of_programs_that_the_pages_name() -> None:
    assert {words[0] for words in commands()} == {"cd", "export", "trainmaster", "gcloud"}
