"""`trainmaster submit`: as gcloud does it, and what follows."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli import package_staging
from cli.gcloud_flags import Flags, overlaid
from shared.core.events import CancelRequested
from shared.errors import PermanentError
from shared.flows.record import record
from tests.integration.cli.conftest import Installation
from tests.support.jobs import START, a_spec
from tests.support.serving import serving

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
    """The training API as far as `gcloud … submit training` asks: it keeps the body."""

    bodies: list[dict[str, Any]] = []  # noqa: RUF012 - of the one server of the test

    def do_POST(self) -> None:
        self.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        body = json.dumps({**self.bodies[-1], "state": "QUEUED"}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


@pytest.fixture
def jobs_api() -> Iterator[str]:
    Recorder.bodies.clear()
    with serving(ThreadingHTTPServer(("127.0.0.1", 0), Recorder)) as address:
        yield f"{address}/"


@pytest.mark.slow  # it needs the Cloud SDK
def test_flags_lie_over_the_job_file_as_the_real_gcloud_lays_them(jobs_api: str, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(SPEC)
    (tmp_path / "token").write_text("t")
    flags = Flags(
        module_name="trainer.task",
        region="us-east1",
        job_dir="gs://bkt/dir",
        scale_tier="custom",
        runtime_version="2.9",
        python_version="3.7",
        service_account="me@p.iam.gserviceaccount.com",
        master_machine_type="n1-standard-8",
        master_accelerator="type=nvidia-tesla-t4,count=2",
        worker_machine_type="n1-highcpu-16",
        worker_count=3,
        parameter_server_machine_type="n1-highmem-8",
        parameter_server_count=1,
        labels="run=first",
    )
    command = ["gcloud", "ai-platform", "jobs", "submit", "training", "digits_1", f"--config={tmp_path / 'job.yaml'}"]
    command += [f"--{name.replace('_', '-')}={getattr(flags, name)}" for name in flags.given]
    command += ["--packages=gs://bkt/new.tar.gz", "--", "--epochs", "5"]
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("CLOUDSDK_")},
        "CLOUDSDK_CONFIG": str(tmp_path / "config"),
        "CLOUDSDK_CORE_PROJECT": "my-project",
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(tmp_path / "token"),
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_ML": jobs_api,
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    (theirs,) = Recorder.bodies

    ours = overlaid(yaml.safe_load(SPEC), flags, ["--epochs", "5"])
    ours["trainingInput"]["packageUris"] = ["gs://bkt/new.tar.gz"]
    assert theirs["trainingInput"].pop("enableWebAccess") is False, "which gcloud always sends, and nobody asked for"
    assert ours["trainingInput"] == theirs["trainingInput"]
    assert ours["labels"] == {"team": "vision", **theirs["labels"]}, "labels of the file stay here"


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (Flags(master_image_uri="gcr.io/p/i", runtime_version="2.11"), "Only one of"),
        (Flags(worker_accelerator="nvidia-tesla-t4"), "--worker-accelerator"),
        (Flags(parameter_server_accelerator="kind=x"), "type=nvidia-tesla-t4,count=1"),
        (Flags(labels="a"), "KEY=VALUE"),
    ],
)
def test_a_flag_that_says_nothing_is_named(flags: Flags, said: str) -> None:
    with pytest.raises(PermanentError, match=said):
        overlaid({}, flags, [])


# Packages.


def a_package(folder: Path, name: str = "trainer") -> Path:
    package = folder / name
    (package / "inner").mkdir(parents=True)
    for file in ("__init__.py", "task.py", "inner/__init__.py"):
        (package / file).write_text("")
    return package


def test_a_package_without_a_setup_py_gets_one_for_itself_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    package = a_package(tmp_path / "root")
    (tmp_path / "root" / "unrelated.bin").write_bytes(b"x")
    before = sorted(tmp_path.rglob("*"))
    out = tmp_path / "out"
    (archive,) = package_staging.build(package, out)
    assert archive.name == "trainer-0.0.0.tar.gz"
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    assert {"trainer/task.py", "trainer/inner/__init__.py", "setup.py"} <= names
    assert "unrelated.bin" not in names
    assert sorted(path for path in tmp_path.rglob("*") if out not in (path, *path.parents)) == before


def test_a_setup_py_that_is_there_is_used_as_it_is(tmp_path: Path) -> None:
    package = a_package(tmp_path)
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='mine', version='7', packages=['trainer'])"
    )
    before = sorted(tmp_path.rglob("*"))
    (archive,) = package_staging.build(package, tmp_path.parent / f"{tmp_path.name}-out")
    assert archive.name == "mine-7.tar.gz"
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_that_is_no_package_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"no __init__\.py"):
        package_staging.build(tmp_path, tmp_path / "out")


def test_packages_are_installed_in_gclouds_order_from_gclouds_places(
    installation: Installation, tmp_path: Path
) -> None:
    wheel = tmp_path / "extra.whl"
    wheel.write_bytes(b"wheel")
    folder = package_staging.folder_for("digits_1", None, "gs://b/dir/", "")
    uris = package_staging.stage([str(wheel), "gs://b/first.tar.gz"], a_package(tmp_path), folder, installation.objects)
    assert uris[0] == "gs://b/first.tar.gz"
    digest = uris[1].split("/")[-2]
    assert uris[1:] == [f"gs://b/dir/packages/{digest}/{name}" for name in ("extra.whl", "trainer-0.0.0.tar.gz")]
    assert installation.objects.read(uris[1], max_bytes=9) == b"wheel"
    assert package_staging.folder_for("digits_1", "gs://s/", "gs://b/dir", "x") == "gs://s/digits_1"
    assert package_staging.folder_for("digits_1", None, None, "x") == "gs://x/packages/digits_1"
    with pytest.raises(PermanentError, match="--staging-bucket"):
        package_staging.folder_for("digits_1", None, None, "")
    with pytest.raises(PermanentError, match="same filename"):
        package_staging.stage([str(wheel), str(wheel)], None, folder, installation.objects)


# The command.


def test_a_job_file_becomes_a_job(installation: Installation, tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump(a_spec()))
    done = installation.run("submit", str(file), "--format", "json", "--labels", "team=vision")
    assert done.exit_code == 0, done.output
    (job,) = installation.store.recent_jobs(9)
    assert job.job_id.startswith("digits_")
    shown = json.loads(done.stdout)
    assert (shown["jobId"], shown["state"], shown["labels"]) == (job.job_id, "QUEUED", {"team": "vision"})
    assert f"Job [{job.job_id}] submitted successfully." in done.stderr


def test_a_time_in_the_job_id_is_now(installation: Installation, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"jobId": "nightly_{time:%Y}", **a_spec()}))
    done = installation.run("submit", str(tmp_path / "job.json"), "--format=json")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["jobId"] == f"nightly_{datetime.now(UTC):%Y}"


def test_a_job_is_made_of_flags_alone(installation: Installation, tmp_path: Path) -> None:
    done = installation.run(
        "submit", "digits_1", f"--package-path={a_package(tmp_path)}", "--module-name=trainer.task",
        "--region=us-central1", "--runtime-version=2.21", "--", "--epochs", "5",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    program = installation.store.recent_jobs(1)[0].plan.program
    assert program.args == ("--epochs", "5")
    (uri,) = program.package_uris
    assert uri.startswith("gs://the-bucket/packages/digits_1/")
    assert installation.objects.read(uri, max_bytes=1 << 20)


def test_every_problem_is_told_before_anything_is_sent(installation: Installation) -> None:
    done = installation.run("submit", "no-id!", "--region=moon", "--module-name=t")
    assert isinstance(done.exception, PermanentError)
    assert all(field in str(done.exception) for field in ("jobId", "region", "packageUris"))
    assert installation.store.recent_jobs(9) == ()


def test_an_id_that_was_used_is_refused_in_the_services_words(installation: Installation, tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    assert installation.run("submit", str(file)).exit_code == 0
    again = installation.run("submit", str(file))
    assert isinstance(again.exception, PermanentError)
    assert "A job with this id already exists." in str(again.exception)


def test_gclouds_async_is_what_happens_anyway_and_contradicts_waiting(
    installation: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    assert isinstance(installation.run("submit", str(file), "--async", "--stream-logs").exception, PermanentError)
    assert installation.run("submit", str(file), "--async").exit_code == 0


def test_waiting_tells_each_change_and_ends_with_gclouds_status(installation: Installation, tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    installation.run("submit", str(file))
    record("digits_1", CancelRequested("digits_1", "me", START), installation.deps)
    done = installation.run("jobs", "wait", "digits_1")
    assert (done.exit_code, done.stdout) == (1, "digits_1: CANCELLED: Job is cancelled by the user\n")
    assert "digits_1: CANCELLED" in done.stderr


def test_cancelling_is_done_once_and_is_no_error_afterwards(installation: Installation, tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    installation.run("submit", str(file))
    for _ in range(2):
        done = installation.run("jobs", "cancel", "digits_1")
        assert (done.exit_code, done.stdout) == (0, "digits_1: CANCELLED\n")
    nobody = installation.run("jobs", "cancel", "nobody")
    assert isinstance(nobody.exception, PermanentError)


def test_the_shell_completes_job_ids(installation: Installation, tmp_path: Path) -> None:
    from cli.jobs import known_ids

    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    installation.run("submit", str(file))
    assert (known_ids("dig"), known_ids("x")) == (["digits_1"], [])
