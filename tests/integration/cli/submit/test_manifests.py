"""`trainmaster submit` and `convert` with manifests of Kubernetes."""

from __future__ import annotations

from pathlib import Path

from tests.integration.cli.conftest import Installation
from trainmaster.errors import PermanentError

MANIFESTS = Path(__file__).parents[3] / "unit" / "jobspec" / "manifests"


def test_submit_of_manifest_prints_what_was_substituted_and_stores_the_job(
    installation: Installation,
) -> None:
    result = installation.run(
        "submit", str(MANIFESTS / "tf-multi-worker.yaml"), "--region=us-central1", "--format=json"
    )
    assert result.exit_code == 0, result.output
    assert "converted TFJob multi-worker (kubeflow.org/v1)" in result.stderr
    assert (
        "spec.runPolicy.activeDeadlineSeconds: 7200 is replaced by scheduling.timeout: 7200s"
        in result.stderr
    )
    (job,) = installation.store.recent_jobs(9)
    assert (job.job_id, job.plan.where.region, job.plan.limits.max_running_s) == (
        "multi_worker",
        "us-central1",
        7200,
    )
    assert "spec.runPolicy.activeDeadlineSeconds" in {
        item.field for item in job.plan.origin.substitutions
    }


def test_converted_manifest_is_a_job_file_that_can_be_submitted(
    installation: Installation, tmp_path: Path
) -> None:
    converted = installation.run(
        "convert", str(MANIFESTS / "jobset-pytorch-cnn-mnist.yaml"), "--region=us-central1"
    )
    assert converted.exit_code == 0, converted.output
    (tmp_path / "job.yaml").write_text(converted.stdout)
    assert installation.run("submit", str(tmp_path / "job.yaml")).exit_code == 0
    (job,) = installation.store.recent_jobs(9)
    assert [group.count for group in job.plan.groups] == [1, 3]


def test_refused_manifest_reports_every_problem_with_its_path(installation: Installation) -> None:
    result = installation.run("submit", str(MANIFESTS / "refused" / "pytorch-everything.yaml"))
    assert isinstance(result.exception, PermanentError)
    for path in (
        "spec.runPolicy.backofLimit",
        "spec.pytorchReplicaSpecs.Worker.template.spec.volumes[0]",
    ):
        assert f"\n  {path}: " in str(result.exception)
    assert installation.store.recent_jobs(9) == ()
