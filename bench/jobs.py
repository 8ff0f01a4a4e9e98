"""The jobs that benchmarks submit."""

from __future__ import annotations


def job_spec(replicas: int) -> dict[str, object]:
    """Return the job file of a chief and `replicas` - 1 workers."""
    training: dict[str, object] = {
        "scaleTier": "CUSTOM",
        "masterType": "n1-standard-4",
        "packageUris": ["gs://bucket/trainer-0.1.tar.gz"],
        "pythonModule": "trainer.task",
        "args": ["--epochs", "5"],
        "jobDir": "gs://bucket/digits",
        "region": "us-central1",
        "runtimeVersion": "2.21",
    }
    if replicas > 1:
        training |= {"workerType": "n1-standard-4", "workerCount": replicas - 1}
    return {"trainingInput": training}
