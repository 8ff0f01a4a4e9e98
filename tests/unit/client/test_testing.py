"""`trainmaster_local.testing`: an installation in memory for users' own tests, and its example in
docs/python.md.
"""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path

import pytest

from tests.support.jobs import a_spec
from trainmaster import Job, JobFailedError, PermanentError
from trainmaster_local.testing import Installation

PAGE = (Path(__file__).parents[3] / "docs" / "python.md").read_text(encoding="utf-8")
JOB_FILE = """
jobId: digits_1
trainingInput: {scaleTier: CUSTOM, masterType: n1-standard-4, workerType: n1-standard-4,
  workerCount: 2,
  region: us-central1, runtimeVersion: "2.21", pythonModule: trainer.task,
  packageUris: ["gs://my-bucket/digits.tar.gz"]}
"""


@pytest.fixture
def installation() -> Installation:
    return Installation()


def submit(installation: Installation, job_id: str = "digits_1") -> Job:
    return installation.client.submit({"jobId": job_id, **a_spec()})


def test_example_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "job.yaml").write_text(JOB_FILE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    # Of earlier tests in this process; they may end meanwhile.
    threads, level = set(threading.enumerate()), logging.getLogger().level
    example: dict[str, object] = {}
    exec(re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[-1], example)  # noqa: S102 - the page's own example
    tests = [
        value for name, value in example.items() if name.startswith("test_") and callable(value)
    ]
    for test in tests:
        test()
    assert len(tests) == PAGE.count("\ndef test_") > 0
    assert set(threading.enumerate()) <= threads
    assert logging.getLogger().level == level


def test_job_moves_only_when_the_test_moves_it(installation: Installation) -> None:
    job = submit(installation)
    assert installation.client.describe(job).state == "QUEUED"
    with pytest.raises(TimeoutError, match="digits_1 is QUEUED"):
        installation.client.wait(job)
    installation.start(job)
    assert installation.client.describe(job).state == "RUNNING"


def test_exhausted_restarts_fail_the_job_with_the_reason(installation: Installation) -> None:
    job = submit(installation)
    for _ in range(30):
        if installation.client.describe(job).has_ended:
            break
        installation.start(job)
        installation.exit(job, "worker-0", 3)
    with pytest.raises(JobFailedError, match=r"digits_1: FAILED: .*status of 3"):
        installation.client.wait(job)
    assert "Job failed." in [line.message for line in installation.client.logs(job)]


def test_round_begins_by_itself_unless_it_awaits_a_vm(installation: Installation) -> None:
    job = submit(installation)
    installation.start(job)
    installation.exit(job, "worker-1", 0)
    installation.exit(job, "worker-0", 1)  # the completed worker is recalled on another VM
    with pytest.raises(
        PermanentError, match="digits_1: no program of worker-0 runs; call `start` first"
    ):
        installation.exit(job, "worker-0", 1)
    installation.start(job)
    installation.exit(job, "worker-0", 1)
    installation.exit(job, "worker-0", 1)
    installation.preempt(job, "worker-1")
    installation.exit(job, "worker-0", 1)  # while it stops, because of the lost peer: not charged
    installation.start(job)
    installation.exit(job, "chief-0", 0)
    texts = [
        decision.text for decision in installation.client.why(job).decisions if decision.rule == 10
    ]
    assert [re.findall(r"Restart \d of 5", text) for text in texts] == [
        [f"Restart {n} of 5"] for n in (1, 2, 3)
    ]
    assert installation.client.wait(job).state == "SUCCEEDED"


def test_cancelled_job_ends(installation: Installation) -> None:
    job = submit(installation)
    installation.client.cancel(job)
    with pytest.raises(JobFailedError, match="CANCELLED"):
        installation.client.wait(job)


def test_replica_without_a_vm_is_named(installation: Installation) -> None:
    job = submit(installation)
    with pytest.raises(
        PermanentError, match="digits_1: no VM of worker-0 runs; call `start` first"
    ):
        installation.exit(job, "worker-0", 0)
    with pytest.raises(PermanentError, match="was not found"):
        installation.start("nobody")


def test_jobs_of_one_installation_are_separate(installation: Installation) -> None:
    first, second = submit(installation), submit(installation, "digits_2")
    installation.start(first)
    installation.exit(first, "chief-0", 0)
    assert installation.client.describe(first).state == "SUCCEEDED"
    assert installation.client.describe(second).state == "PREPARING"


def test_job_of_another_project_is_refused(installation: Installation) -> None:
    submit(installation)
    for use in (installation.client.cancel, installation.client.describe, installation.client.why):
        with pytest.raises(PermanentError, match="job of the project staging"):
            use("projects/staging/jobs/digits_1")
    own = f"projects/{installation.client.project}/jobs/digits_1"
    assert installation.client.describe(own).state != "CANCELLED"


def test_checked_job_is_not_created(installation: Installation) -> None:
    checked = installation.client.check({"jobId": "digits_1", **a_spec()})
    assert checked.job.state == "QUEUED"
    with pytest.raises(PermanentError):
        installation.client.describe(checked.job)
    assert submit(installation).job_id == checked.job.job_id
