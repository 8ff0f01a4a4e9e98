"""The real gcloud against the API: its output on both streams and its exit code."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from flask import Flask

from tests.integration.api.client import PROJECT, UNPRIVILEGED, VIEWER
from tests.integration.api.served import Gcloud, serving
from tests.support.world import World

pytestmark = pytest.mark.slow

SUBMIT = ("ai-platform", "jobs", "submit", "training")
PLACE = ("--region=us-central1",)
PROGRAM = (
    "--packages=gs://bucket/trainer-0.1.tar.gz",
    "--module-name=trainer.task",
    "--runtime-version=2.21",
)
GANG = (
    "--scale-tier=custom",
    "--master-machine-type=n1-standard-4",
    "--worker-machine-type=n1-standard-4",
    "--worker-count=2",
)


def stored(world: World, job_id: str = "digits_1") -> dict[str, Any]:
    loaded = world.store.load(job_id)
    assert loaded is not None
    spec: dict[str, Any] = json.loads(loaded.state.job.spec_json)
    return spec


def test_gcloud_submits_describes_lists_labels_and_cancels_a_job(
    gcloud: Gcloud, world: World
) -> None:
    submitted = gcloud.run(
        *SUBMIT, "digits_1", *PLACE, *PROGRAM, *GANG, "--labels=team=vision", "--", "--epochs", "5"
    )
    assert submitted.returncode == 0, submitted.stderr
    assert yaml.safe_load(submitted.stdout) == {"jobId": "digits_1", "state": "QUEUED"}
    assert (
        submitted.stderr == "Job [digits_1] submitted successfully.\n"
        "Your job is still active. You may view the status of your job with the command\n\n"
        "  $ gcloud ai-platform jobs describe digits_1\n\n"
        "or continue streaming the logs with the command\n\n"
        "  $ gcloud ai-platform jobs stream-logs digits_1\n"
    )
    training_input = {
        "region": "us-central1",
        "scaleTier": "CUSTOM",
        "masterType": "n1-standard-4",
        "workerType": "n1-standard-4",
        "workerCount": "2",
        "packageUris": ["gs://bucket/trainer-0.1.tar.gz"],
        "pythonModule": "trainer.task",
        "runtimeVersion": "2.21",
        "args": ["--epochs", "5"],
        "enableWebAccess": False,
    }
    assert stored(world) == {
        "jobId": "digits_1",
        "labels": {"team": "vision"},
        "trainingInput": training_input,
    }
    world.deliver()
    world.report_all_ready()

    described = gcloud.run("ai-platform", "jobs", "describe", "digits_1")
    shown = yaml.safe_load(described.stdout)
    assert (described.returncode, shown["state"], shown["trainingInput"]) == (
        0,
        "RUNNING",
        training_input,
    )
    assert (shown["jobPosition"], shown["trainingOutput"]) == ("0", {})
    assert (
        f"https://console.cloud.google.com/mlengine/jobs/digits_1?project={PROJECT}"
        in described.stderr
    )

    listed = gcloud.run("ai-platform", "jobs", "list")
    assert [line.split() for line in listed.stdout.splitlines()] == [
        ["JOB_ID", "STATUS", "CREATED"],
        ["digits_1", "RUNNING", "2026-11-21T03:00:00"],
    ]

    updated = gcloud.run("ai-platform", "jobs", "update", "digits_1", "--update-labels=stage=a")
    assert (updated.returncode, updated.stdout, updated.stderr) == (
        0,
        "",
        "Updated ml engine job [digits_1].\n",
    )
    assert {label.key: label.value for label in world.job.labels} == {
        "team": "vision",
        "stage": "a",
    }

    for state in ("CANCELLED", "CANCELLED"):
        cancelled = gcloud.run("ai-platform", "jobs", "cancel", "digits_1")
        assert (cancelled.returncode, cancelled.stdout, cancelled.stderr) == (0, "", "")
        assert world.state == state

    cleared = gcloud.run("ai-platform", "jobs", "update", "digits_1", "--clear-labels")
    assert (cleared.returncode, world.job.labels) == (0, ())
    world.check()


def test_second_submission_of_same_id_is_a_conflict(gcloud: Gcloud, world: World) -> None:
    flags = (*PLACE, *PROGRAM)
    assert gcloud.run(*SUBMIT, "digits_1", *flags).returncode == 0
    again = gcloud.run(*SUBMIT, "digits_1", *flags)
    assert (again.returncode, again.stdout) == (1, "")
    assert (
        again.stderr
        == "ERROR: (gcloud.ai-platform.jobs.submit.training) Resource in projects [my-project] is"
        " the subject of a conflict: Field: job.job_id Error: A job with this id already"
        " exists.\n- '@type': type.googleapis.com/google.rpc.BadRequest\n  fieldViolations:\n  -"
        " description: A job with this id already exists.\n    field: job.job_id\n"
    )
    assert len(world.ledger) == 1


def test_request_repeated_by_gcloud_creates_one_job(
    app: Flask, world: World, tmp_path: Path
) -> None:
    """The first response is lost; gcloud's transport repeats the request."""
    methods: list[str] = []

    def losing(environ: dict[str, Any], start: Callable[..., Any]) -> Any:
        methods.append(environ["REQUEST_METHOD"])
        if len(methods) > 1:
            return app(environ, start)
        b"".join(app(environ, lambda *_: None))  # type: ignore[arg-type]
        start("503 Service Unavailable", [("Content-Type", "text/plain")])
        return [b"lost"]

    with serving(losing) as endpoint:
        submitted = Gcloud(endpoint, tmp_path).run(*SUBMIT, "digits_1", *PLACE, *PROGRAM)
    assert methods == ["POST", "POST"]
    assert submitted.returncode == 0, submitted.stderr
    assert "Job [digits_1] submitted successfully." in submitted.stderr
    assert len(world.ledger) == 1


CONFIG = """
labels: {team: vision}
trainingInput:
  scaleTier: CUSTOM
  masterType: n1-highmem-8
  masterConfig:
    acceleratorConfig: {type: NVIDIA_TESLA_T4, count: 1}
  workerType: n1-highmem-8
  workerCount: 3
  evaluatorType: n1-standard-4
  evaluatorCount: 1
  scheduling: {maxRunningTime: 7200s}
  args: [--from, config]
"""


def test_config_file_and_overriding_flags_are_combined(
    gcloud: Gcloud, world: World, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(CONFIG)
    submitted = gcloud.run(
        *SUBMIT, "digits_1", *PLACE, *PROGRAM, "--config=config.yaml", "--job-dir=gs://bucket/d"
    )
    assert submitted.returncode == 0, submitted.stderr
    training = stored(world)["trainingInput"]
    assert (training["workerCount"], training["args"], training["jobDir"]) == (
        "3",
        ["--from", "config"],
        "gs://bucket/d",
    )
    assert [(str(group.task_type), group.count) for group in world.job.plan.groups][1:] == [
        ("worker", 3),
        ("evaluator", 1),
    ]
    shown = yaml.safe_load(gcloud.run("ai-platform", "jobs", "describe", "digits_1").stdout)
    assert shown["trainingInput"]["masterConfig"] == {
        "acceleratorConfig": {"count": "1", "type": "NVIDIA_TESLA_T4"}
    }


def test_wrong_config_is_refused_with_every_wrong_field(
    gcloud: Gcloud, world: World, tmp_path: Path
) -> None:
    (tmp_path / "config.yaml").write_text(
        "trainingInput: {bogusField: 1, scaleTier: CUSTOM, masterType: n1-standard-4, workerCount:"
        " 2}\n"
    )
    refused = gcloud.run(*SUBMIT, "bad-name!", *PLACE, *PROGRAM, "--config=config.yaml")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(
        "ERROR: (gcloud.ai-platform.jobs.submit.training) INVALID_ARGUMENT: Field: "
    )
    details = yaml.safe_load(refused.stderr[refused.stderr.index("- '@type'") :])
    fields = {violation["field"] for violation in details[0]["fieldViolations"]}
    assert {"job.job_id", "training_input.bogus_field", "training_input.worker_type"} <= fields
    assert world.store.recent_jobs(5) == ()


@pytest.mark.parametrize(
    ("name", "flags", "expected"),
    [
        ("basic", (*PROGRAM, "--scale-tier=basic"), {"scaleTier": "BASIC"}),
        ("gpu", (*PROGRAM, "--scale-tier=basic-gpu"), {"scaleTier": "BASIC_GPU"}),
        (
            "accelerators",
            (*PROGRAM, *GANG, "--worker-accelerator=type=nvidia-tesla-t4,count=2"),
            {"workerConfig": {"acceleratorConfig": {"type": "NVIDIA_TESLA_T4", "count": "2"}}},
        ),
        (
            "container",
            (
                "--master-image-uri=gcr.io/p/i:1",
                "--scale-tier=custom",
                "--master-machine-type=n1-standard-4",
            ),
            {"masterConfig": {"imageUri": "gcr.io/p/i:1"}},
        ),
        (
            "parameter_servers",
            (
                *PROGRAM,
                *GANG,
                "--parameter-server-machine-type=n1-standard-4",
                "--parameter-server-count=1",
            ),
            {"parameterServerCount": "1"},
        ),
    ],
)
def test_machine_flags_of_gcloud_are_accepted(
    gcloud: Gcloud, world: World, name: str, flags: tuple[str, ...], expected: dict[str, object]
) -> None:
    submitted = gcloud.run(*SUBMIT, name, *PLACE, *flags)
    assert submitted.returncode == 0, submitted.stderr
    assert expected.items() <= stored(world, name)["trainingInput"].items()


@pytest.mark.parametrize("command", [("describe",), ("cancel",), ("update", "--update-labels=a=b")])
def test_gcloud_reports_unknown_job(gcloud: Gcloud, command: tuple[str, ...]) -> None:
    refused = gcloud.run("ai-platform", "jobs", command[0], "unknown", *command[1:])
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(
        f"ERROR: (gcloud.ai-platform.jobs.{command[0]}) NOT_FOUND: Field: name Error: The resource "
        "projects/my-project/jobs/unknown was not found."
    )


def test_gcloud_reports_missing_permission_and_unknown_token(gcloud: Gcloud, world: World) -> None:
    world.submit()
    assert (
        gcloud.run("ai-platform", "jobs", "list", token=VIEWER)
        .stdout.splitlines()[1]
        .startswith("digits_1")
    )
    refused = gcloud.run("ai-platform", "jobs", "cancel", "digits_1", token=VIEWER)
    assert refused.returncode == 1
    assert (
        "PERMISSION_DENIED: Permission 'aiplatform.customJobs.cancel' denied on resource"
        in refused.stderr
    )
    assert gcloud.run("ai-platform", "jobs", "list", token=UNPRIVILEGED).returncode == 1
    unknown = gcloud.run("ai-platform", "jobs", "list", token="ya29.an-expired-access-token")
    assert unknown.returncode == 1
    assert "UNAUTHENTICATED: Request had invalid authentication credentials" in unknown.stderr
    assert world.state == "QUEUED"


def test_gcloud_ai_manages_custom_jobs(gcloud: Gcloud, world: World) -> None:
    created = gcloud.run(
        "ai",
        "custom-jobs",
        "create",
        *PLACE,
        "--display-name=digits",
        "--labels=team=vision",
        "--args=--epochs,5",
        "--worker-pool-spec=machine-type=n1-standard-4,replica-count=1,container-image-uri=gcr.io/p/i:1",
        "--worker-pool-spec=machine-type=n1-standard-4,replica-count=2,container-image-uri=gcr.io/p/i:1",
    )
    assert created.returncode == 0, created.stderr
    (job,) = world.store.recent_jobs(5)
    number = job.job_id.removeprefix("custom_")
    name = f"projects/{PROJECT}/locations/us-central1/customJobs/{number}"
    assert f"CustomJob [{name}] is submitted successfully." in created.stderr
    described = gcloud.run("ai", "custom-jobs", "describe", number, *PLACE)
    shown = yaml.safe_load(described.stdout)
    assert (shown["name"], shown["state"], shown["displayName"]) == (
        name,
        "JOB_STATE_QUEUED",
        "digits",
    )
    assert [pool["replicaCount"] for pool in shown["jobSpec"]["workerPoolSpecs"]] == ["1", "2"]
    listed = gcloud.run("ai", "custom-jobs", "list", *PLACE, "--format=value(name,state)")
    assert listed.stdout.split() == [name, "JOB_STATE_QUEUED"]
    filtered = gcloud.run("ai", "custom-jobs", "list", *PLACE, "--filter=state=JOB_STATE_FAILED")
    assert (filtered.returncode, filtered.stdout) == (0, "")
    cancelled = gcloud.run("ai", "custom-jobs", "cancel", number, *PLACE)
    assert cancelled.returncode == 0, cancelled.stderr
    assert world.store.recent_jobs(5)[0].state == "CANCELLED"
    missing = gcloud.run("ai", "custom-jobs", "describe", "17", *PLACE)
    assert missing.returncode == 1
    assert "NOT_FOUND" in missing.stderr


def test_gcloud_ai_manages_tuning_jobs(gcloud: Gcloud, world: World, tmp_path: Path) -> None:
    config = tmp_path / "tuning.yaml"
    study = {
        "metrics": [{"metricId": "accuracy", "goal": "MAXIMIZE"}],
        "parameters": [
            {"parameterId": "layers", "integerValueSpec": {"minValue": 1, "maxValue": 8}}
        ],
    }
    pool = {
        "machineSpec": {"machineType": "n1-standard-4"},
        "replicaCount": 1,
        "containerSpec": {"imageUri": "i"},
    }
    config.write_text(
        yaml.safe_dump({"studySpec": study, "trialJobSpec": {"workerPoolSpecs": [pool]}})
    )
    created = gcloud.run(
        "ai",
        "hp-tuning-jobs",
        "create",
        *PLACE,
        "--display-name=tuning",
        f"--config={config}",
        "--max-trial-count=4",
        "--parallel-trial-count=2",
    )
    assert created.returncode == 0, created.stderr
    (job,) = world.store.recent_jobs(5)
    number = job.job_id.removeprefix("custom_")
    name = f"projects/{PROJECT}/locations/us-central1/hyperparameterTuningJobs/{number}"
    world.deliver()
    described = yaml.safe_load(
        gcloud.run("ai", "hp-tuning-jobs", "describe", number, *PLACE).stdout
    )
    assert (described["name"], described["state"]) == (name, "JOB_STATE_PENDING")
    assert [trial["id"] for trial in described["trials"]] == ["1", "2"]
    listed = gcloud.run("ai", "hp-tuning-jobs", "list", *PLACE, "--format=value(name,state)")
    assert listed.stdout.split() == [name, "JOB_STATE_PENDING"]
    cancelled = gcloud.run("ai", "hp-tuning-jobs", "cancel", number, *PLACE)
    assert cancelled.returncode == 0, cancelled.stderr
    loaded = world.store.load(job.job_id)
    assert loaded is not None
    assert loaded.state.job.state == "CANCELLED"
