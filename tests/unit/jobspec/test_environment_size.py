"""Jobs whose programs Linux could not start, because a variable that describes the job
is too long.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.fields.environment_size import VARIABLE_BYTES_MAX
from trainmaster.jobspec.problems import InvalidJob

UUID_ID = "a" * 36


def a_document(job_id: str = "digits_1", workers: int = 0, **changes: object) -> dict[str, object]:
    training_input: dict[str, object] = {
        "scaleTier": "CUSTOM",
        "masterType": "n1-standard-4",
        "packageUris": ["gs://bucket/trainer-0.1.tar.gz"],
        "pythonModule": "trainer.task",
        "region": "us-central1",
        "runtimeVersion": "2.21",
    }
    if workers:
        training_input |= {"workerType": "n1-standard-4", "workerCount": workers}
    return {"jobId": job_id, "trainingInput": training_input | changes}


def problem_of(document: dict[str, object]) -> tuple[str, str]:
    """Return field and text of the only problem for which the job is refused."""
    with pytest.raises(InvalidJob) as caught:
        accept(document, default_job_id=None)
    (problem,) = caught.value.problems
    return problem.field, problem.problem


def test_job_of_1000_replicas_with_a_uuid_as_id_is_accepted() -> None:
    assert accept(a_document(UUID_ID, 999), default_job_id=None).plan.groups[1].count == 999


def test_job_whose_addresses_are_too_long_is_refused_with_its_worker_count() -> None:
    """An address contains the job's id and zone."""
    field, problem = problem_of(a_document("j" * 128, 999, region="northamerica-northeast1"))
    assert field == "trainingInput.workerCount"
    assert problem.startswith("makes TF_CONFIG ")


@pytest.mark.parametrize("text", ["é" * 24_000, "😀" * 12_000], ids=["accents", "emoji"])
def test_description_that_grows_in_json_is_refused(text: str) -> None:
    """The spec is shorter than 64 KiB. In CLUSTER_SPEC, a character has up to 14 bytes."""
    field, problem = problem_of(a_document(args=[text]))
    assert field == "job"
    assert problem.startswith("makes CLUSTER_SPEC ")


@pytest.mark.parametrize("text", ["x" * 60_000, '"' * 30_000], ids=["letters", "quotes"])
def test_large_spec_that_fits_is_accepted(text: str) -> None:
    """Both take 60 KB in the job file, because a quote is written as two characters."""
    accept(a_document(args=[text]), default_job_id=None)


def test_longest_variable_is_what_linux_allows() -> None:
    code = [sys.executable, "-c", "pass"]
    name = "TF_CONFIG="
    subprocess.run(code, env={"TF_CONFIG": "x" * (VARIABLE_BYTES_MAX - len(name))}, check=True)
    with pytest.raises(OSError, match="too long"):
        subprocess.run(
            code, env={"TF_CONFIG": "x" * (VARIABLE_BYTES_MAX - len(name) + 1)}, check=True
        )
