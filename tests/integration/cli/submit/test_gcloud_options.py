"""`trainmaster submit` reads the options and config files of `gcloud ai-platform jobs submit`
and of `gcloud ai custom-jobs create` as gcloud does.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.cli.conftest import Installation
from tests.support.jobs import a_spec
from tests.support.serving import serving
from trainmaster.cli.gcloud_flags import apply_flags
from trainmaster.errors import PermanentError

SPEC = """
labels: {team: vision}
trainingInput:
  scaleTier: CUSTOM
  masterType: n1-standard-4
  packageUris: [gs://bkt/old.tar.gz]
  pythonModule: old.task
  args: [--old]
  region: us-central1
  runtimeVersion: "2.11"
  workerConfig: {diskConfig: {bootDiskSizeGb: 200}}
"""


class Recorder(BaseHTTPRequestHandler):
    """The part of the training API that `gcloud … submit training` calls.

    Keeps the request bodies.
    """

    bodies: list[dict[str, Any]] = []  # noqa: RUF012 - a test has one server

    def do_POST(self) -> None:
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        body = json.dumps({**self.bodies[-1], "state": "QUEUED"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def jobs_api() -> Iterator[str]:
    Recorder.bodies.clear()
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Recorder)) as address:
        yield f"{address}/"


@pytest.mark.slow  # it needs the Cloud SDK
def test_flags_override_the_job_file_as_in_gcloud(jobs_api: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SPEC)
    (tmp_path / "token").write_text("t")
    flags = {
        "module_name": "trainer.task",
        "region": "us-east1",
        "job_dir": "gs://bkt/dir",
        "scale_tier": "custom",
        "runtime_version": "2.9",
        "python_version": "3.7",
        "service_account": "me@p.iam.gserviceaccount.com",
        "master_machine_type": "n1-standard-8",
        "master_accelerator": "type=nvidia-tesla-t4,count=2",
        "worker_machine_type": "n1-highcpu-16",
        "worker_count": 3,
        "parameter_server_machine_type": "n1-highmem-8",
        "parameter_server_count": 1,
        "labels": "run=first",
        "use_chief_in_tf_config": True,
        "enable_web_access": True,
        "kms_key": "k",
        "kms_keyring": "r",
        "kms_location": "us-east1",
        "kms_project": "p",
    }
    command = [
        "gcloud",
        "ai-platform",
        "jobs",
        "submit",
        "training",
        "digits_1",
        f"--config={tmp_path / 'job.yaml'}",
    ]
    values = {name: value for name, value in flags.items() if name != "enable_web_access"}
    command += [f"--{name.replace('_', '-')}={value}" for name, value in values.items()] + [
        "--enable-web-access"
    ]
    command += ["--packages=gs://bkt/new.tar.gz", "--", "--epochs", "5"]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("CLOUDSDK_")},
        "CLOUDSDK_CONFIG": str(tmp_path / "config"),
        "CLOUDSDK_CORE_PROJECT": "my-project",
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(tmp_path / "token"),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_ML": jobs_api,
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
    }
    result = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=90, check=False
    )
    assert result.returncode == 0, result.stderr
    (gclouds,) = Recorder.bodies

    own = apply_flags(yaml.safe_load(SPEC), flags, ["--epochs", "5"])
    own["trainingInput"]["packageUris"] = ["gs://bkt/new.tar.gz"]
    assert own["trainingInput"] == gclouds["trainingInput"]
    assert own["labels"] == {
        "team": "vision",
        **gclouds["labels"],
    }, "gcloud drops the labels of the file"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"master_image_uri": "gcr.io/p/i", "runtime_version": "2.11"}, "Only one of"),
        ({"worker_accelerator": "nvidia-tesla-t4"}, "--worker-accelerator"),
        ({"parameter_server_accelerator": "kind=x"}, "type=nvidia-tesla-t4,count=1"),
        ({"labels": "a"}, "KEY=VALUE"),
    ],
)
def test_invalid_flag_is_named(flags: dict[str, object], message: str) -> None:
    with pytest.raises(PermanentError, match=message):
        apply_flags({}, flags, [])


CONFIGS = Path(__file__).parents[2] / "entrances" / "files"


@pytest.mark.parametrize(
    "name", ["mapping", "top-level", "top-level-snake", "top-level-hpt", "top-level-pipe"]
)
def test_submit_reads_the_config_files_of_vertex_ais_commands(
    installation: Installation, name: str
) -> None:
    result = installation.run(
        "submit", f"--config={CONFIGS / f'config-{name}.yaml'}", "--region", "us-east1", "--", "-v"
    )
    assert result.exit_code == 0, result.output
    (job,) = installation.store.recent_jobs(9)
    assert (job.plan.where.region, job.plan.program.args) == ("us-east1", ("-v",))
    assert job.job_id.startswith("config_")


@pytest.mark.parametrize(
    "chief", [("--use-chief-in-tf-config", "true"), ("--use-chief-in-tf-config=true",)]
)
def test_submit_reads_flags_as_gcloud_does(
    installation: Installation, chief: tuple[str, ...]
) -> None:
    result = installation.run(
        "submit",
        "flags_1",
        "--region=us-central1",
        "--packages",
        "gs://my-bucket/a-0.1.tar.gz",
        "--module-name=t",
        "--runtime-version=2.21",
        *chief,
        "--project=my-project",
        "--verbosity=debug",
        "-q",
        "--no-enable-web-access",
        "--",
        "true",
    )
    assert result.exit_code == 0, result.output
    (job,) = installation.store.recent_jobs(9)
    assert (job.plan.program.args, job.plan.primary.task_type) == (("true",), "chief")


def test_submit_with_a_stray_word_sends_nothing(installation: Installation) -> None:
    result = installation.run(
        "submit", "flags_1", "--region=us-central1", "--module-name=t", "stray"
    )
    assert (result.exit_code, installation.store.recent_jobs(9)) == (2, ())
    assert "unrecognized arguments: stray" in " ".join(result.output.replace("│", "").split())


def test_submit_describes_worker_pools_by_options_as_gcloud_ai_does(
    installation: Installation,
) -> None:
    image = "us-docker.pkg.dev/vertex-ai/training/pytorch-gpu.2-4.py310:latest"
    python = f"python-module=t.task,executor-image-uri={image}"
    gpu = "accelerator-type=nvidia-tesla-t4"
    result = installation.run(
        "submit",
        "--display-name=My waves",
        "--region=us-central1",
        "--python-package-uris=gs://bkt/a-1.tar.gz",
        f"--worker-pool-spec=machine-type=n1-standard-8,{gpu},{python}",
        "--worker-pool-spec",
        f"machine-type=n1-standard-4,replica-count=3,{gpu},accelerator-count=2,{python}",
        "--args=--epochs=5",
    )
    assert result.exit_code == 0, result.output
    (job,) = installation.store.recent_jobs(9)
    assert job.job_id.startswith("My_waves_")
    assert [(group.machine_type, group.count) for group in job.plan.groups] == [
        ("n1-standard-8", 1),
        ("n1-standard-4", 3),
    ]
    assert [group.accelerator.count for group in job.plan.groups if group.accelerator] == [1, 2]
    program = job.plan.program
    assert (program.package_uris, program.args) == (("gs://bkt/a-1.tar.gz",), ("--epochs=5",))


def test_worker_pools_by_options_replace_those_of_the_file(installation: Installation) -> None:
    pool = "--worker-pool-spec=machine-type=n1-highmem-2,container-image-uri=gcr.io/p/i:1"
    result = installation.run(
        "submit", f"--config={CONFIGS / 'config-top-level.yaml'}", "--region=us-east1", pool
    )
    assert result.exit_code == 0, result.output
    (job,) = installation.store.recent_jobs(9)
    assert [(group.machine_type, group.count) for group in job.plan.groups] == [("n1-highmem-2", 1)]


@pytest.mark.parametrize(
    ("pool", "problem"),
    [
        ("machine=n1-standard-4", "machine is unknown; known are machine-type, replica-count"),
        ("n1-standard-4", "the format is KEY=VALUE,KEY=VALUE"),
        (
            "machine-type=n1-standard-4,local-package-path=.",
            "local-package-path would build an image",
        ),
        ("machine-type=n1-standard-4,replica-count=two", "replica-count must be a whole number"),
        (
            "machine-type=n1-standard-4,python-module=t,container-image-uri=i",
            "either container-image-uri or",
        ),
    ],
)
def test_wrong_worker_pool_option_names_the_problem(
    installation: Installation, pool: str, problem: str
) -> None:
    result = installation.run(
        "submit", "waves", "--region=us-central1", f"--worker-pool-spec={pool}"
    )
    assert isinstance(result.exception, PermanentError)
    assert "--worker-pool-spec" in str(result.exception)
    assert problem in str(result.exception)


def test_worker_pool_options_with_a_job_of_ai_platform_are_refused(
    installation: Installation, tmp_path: Path
) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"jobId": "digits_1", **a_spec()}))
    result = installation.run(
        "submit", str(tmp_path / "job.json"), "--worker-pool-spec=machine-type=n1-standard-4"
    )
    assert "--worker-pool-spec: a job of AI Platform has no field for it" in str(result.exception)
