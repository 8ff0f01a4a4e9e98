"""`trainmaster submit`: options like gcloud's, packages, and the submitted job."""

from __future__ import annotations

import hashlib
import json
import os
import re
import subprocess
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.cli.conftest import Installation
from tests.support.jobs import START, a_spec
from tests.support.serving import serving
from trainmaster.cli.gcloud_flags import apply_flags
from trainmaster.client import package_staging
from trainmaster.core.events import CancelRequested
from trainmaster.errors import PermanentError
from trainmaster.flows.commit.record import record

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


# Packages.


def make_package(folder: Path) -> Path:
    package = folder / "trainer"
    (package / "inner").mkdir(parents=True)
    for file in ("__init__.py", "task.py", "inner/__init__.py"):
        (package / file).write_text("")
    return package


def test_package_without_setup_py_is_built_without_changing_its_folder(tmp_path: Path) -> None:
    package = make_package(tmp_path / "root")
    (tmp_path / "root" / "unrelated.bin").write_bytes(b"x")
    before = sorted(tmp_path.rglob("*"))
    out = tmp_path / "out"
    (archive,) = package_staging.build(package, out)
    assert archive.name == "trainer-1.0-py3-none-any.whl"
    with zipfile.ZipFile(archive) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == {"trainer/__init__.py", "trainer/task.py", "trainer/inner/__init__.py"}
    assert (
        sorted(path for path in tmp_path.rglob("*") if out not in (path, *path.parents)) == before
    )


def test_package_with_setup_py_is_built_with_it(tmp_path: Path) -> None:
    package = make_package(tmp_path)
    (tmp_path / "setup.py").write_text(
        "from setuptools import setup\nsetup(name='mine', version='7', packages=['trainer'])"
    )
    before = sorted(tmp_path.rglob("*"))
    (archive,) = package_staging.build(package, tmp_path.parent / f"{tmp_path.name}-out")
    assert archive.name == "mine-7.tar.gz"
    assert sorted(tmp_path.rglob("*")) == before


def test_folder_without_init_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"no __init__\.py"):
        package_staging.build(tmp_path, tmp_path / "out")


def test_packages_have_gclouds_order_and_folders(
    installation: Installation, tmp_path: Path
) -> None:
    wheel = tmp_path / "extra.whl"
    wheel.write_bytes(b"wheel")
    folder = package_staging.folder_for("digits_1", None, "gs://b/dir/", "")
    uris = package_staging.stage(
        [str(wheel), "gs://b/first.tar.gz"], make_package(tmp_path), folder, installation.objects
    )
    assert uris[0] == "gs://b/first.tar.gz"
    digest = uris[1].split("/")[-2]
    for uri, name in zip(uris[1:], ("extra.whl", "trainer-1.0-py3-none-any.whl"), strict=True):
        address, _, version = uri.partition("#")
        assert address == f"gs://b/dir/packages/{digest}/{name}"
        content = installation.objects.read(address, max_bytes=1 << 20)
        assert content
        assert version == f"sha256={hashlib.sha256(content).hexdigest()}"
    assert package_staging.folder_for("digits_1", "gs://s/", "gs://b/dir", "x") == "gs://s/digits_1"
    assert package_staging.folder_for("digits_1", None, None, "x") == "gs://x/packages/digits_1"
    with pytest.raises(PermanentError, match="--staging-bucket"):
        package_staging.folder_for("digits_1", None, None, "")
    with pytest.raises(PermanentError, match="same filename"):
        package_staging.stage([str(wheel), str(wheel)], None, folder, installation.objects)


def test_upload_names_files_and_bytes_of_each_package(
    installation: Installation, tmp_path: Path
) -> None:
    package = make_package(tmp_path)
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(name='mine')\n")
    other = tmp_path / "notes.txt"
    other.write_bytes(b"x" * 2048)
    said: list[str] = []
    package_staging.stage([str(other)], package, "gs://b/p", installation.objects, said.append)
    assert said[0] == "notes.txt, 2.0 KiB"
    assert re.fullmatch(r"mine-0\.0\.0\.tar\.gz, \d+ files, \d+\.\d KiB", said[1])
    wheel = package_staging.build(make_package(tmp_path / "other"), tmp_path / "out")[0]
    assert re.search(r"whl, [1-9] files, 0\.\d KiB", said_of(wheel))


def said_of(file: Path) -> str:
    return package_staging.describe_archive(file.name, file.read_bytes())


# The command.


def test_submit_of_job_file_stores_the_job(installation: Installation, tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump(a_spec()))
    result = installation.run("submit", str(file), "--format", "json", "--labels", "team=vision")
    assert result.exit_code == 0, result.output
    (job,) = installation.store.recent_jobs(9)
    assert job.job_id.startswith("digits_")
    view = json.loads(result.stdout)
    assert (view["jobId"], view["state"], view["labels"]) == (
        job.job_id,
        "QUEUED",
        {"team": "vision"},
    )
    assert f"Job [{job.job_id}] submitted successfully." in result.stderr


def test_submit_fills_the_time_into_the_job_id(installation: Installation, tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"jobId": "nightly_{time:%Y}", **a_spec()}))
    result = installation.run("submit", str(tmp_path / "job.json"), "--format=json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["jobId"] == f"nightly_{datetime.now(UTC):%Y}"


def test_submit_without_job_file_uses_the_flags(installation: Installation, tmp_path: Path) -> None:
    result = installation.run(
        "submit",
        "digits_1",
        f"--package-path={make_package(tmp_path)}",
        "--module-name=trainer.task",
        "--region=us-central1",
        "--runtime-version=2.21",
        "--",
        "--epochs",
        "5",
    )
    assert result.exit_code == 0, result.output
    program = installation.store.recent_jobs(1)[0].plan.program
    assert program.args == ("--epochs", "5")
    (uri,) = program.package_uris
    assert uri.startswith("gs://the-bucket/packages/digits_1/")
    uri, _, version = uri.partition("#")
    content = installation.objects.read(uri, max_bytes=1 << 20)
    assert content
    assert version == f"sha256={hashlib.sha256(content).hexdigest()}"


def test_submit_of_a_folder_needs_neither_a_job_file_nor_setup_py(
    installation: Installation, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINMASTER_REGION", "europe-west4")
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "requirements.txt").write_text("pandas\n")
    command = ["submit", "--folder", str(tmp_path), "--runtime-version=2.21"]
    program = ("--", "python", "train.py", "--epochs", "3")
    checked = installation.run(*command, "--check", *program).output
    assert "ok   job file of " in checked
    assert "ok   folder: its files have what the command starts" in checked
    assert "requirements.txt fits the runtime 2.21" in checked
    assert installation.objects.created("gs://the-bucket/", 9) == ()
    result = installation.run(*command, *program)
    assert result.exit_code == 0, result.output
    assert "requirements.txt: pandas\n" in result.stderr
    (job,) = installation.store.recent_jobs(9)
    assert job.job_id.startswith(f"{tmp_path.name.replace('-', '_')[:30]}")
    assert (job.plan.where.region, job.plan.program.args[:2]) == (
        "europe-west4",
        ("python", "train.py"),
    )
    named = installation.run(
        *command[:1], "digits_7", *command[1:], "--region=us-central1", "--", "python", "train.py"
    )
    assert named.exit_code == 0, named.output
    job = installation.store.recent_jobs(1)[0]
    assert (job.job_id, job.plan.where.region) == ("digits_7", "us-central1")
    assert len(installation.objects.created("gs://the-bucket/", 9)) == 1, (
        "the same files are uploaded once"
    )
    assert "a folder needs a command" in str(installation.run(*command).exception)


def test_folder_whose_program_must_fail_is_refused_by_check_and_by_submit(
    installation: Installation, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("import einops\n")
    (tmp_path / "requirements.txt").write_text("torch<2.6\n")
    command = ["submit", "a_1", f"--folder={tmp_path}", "--runtime-version=pytorch-2.13"]
    command += ["--region=us-central1"]
    program = ("--", "python", "trian.py")
    checked = installation.run(*command, "--check", *program)
    assert checked.exit_code == 1
    assert "FIX  trian.py is not among the files that the job gets" in checked.output
    assert "FIX  requirements.txt: torch<2.6 excludes torch 2.13" in checked.output
    refused = str(installation.run(*command, *program).exception)
    assert "trian.py is not among" in refused
    assert "torch<2.6 excludes" in refused
    assert installation.objects.created("gs://the-bucket/", 9) == ()
    assert installation.store.recent_jobs(9) == ()
    (tmp_path / "requirements.txt").unlink()
    accepted = installation.run(*command, "--", "python", "train.py")
    assert accepted.exit_code == 0, accepted.output
    assert "warning: train.py:1 imports einops" in accepted.stderr
    used = installation.run(*command, "--check", "--", "python", "train.py")
    assert used.exit_code == 1
    assert "FIX  jobId: a job with this id already exists; a_1 is QUEUED" in used.output


@pytest.mark.parametrize("module", ["trainer.tsk", "trainer.task.py"])
def test_local_package_without_the_module_is_refused_before_its_upload(
    installation: Installation, tmp_path: Path, module: str
) -> None:
    command = ["submit", "a_1", f"--package-path={make_package(tmp_path)}"]
    command += ["--region=us-central1", "--runtime-version=2.21", f"--module-name={module}"]
    refused = installation.run(*command)
    assert "trainer.task" in str(refused.exception)
    assert module in str(refused.exception)
    assert installation.objects.created("gs://the-bucket/", 9) == ()
    assert installation.run(*command, "--check").exit_code == 1


@pytest.mark.parametrize("wheel", [False, True])
def test_check_builds_local_packages_and_uploads_nothing(
    installation: Installation, tmp_path: Path, *, wheel: bool
) -> None:
    package = f"--package-path={make_package(tmp_path)}"
    if wheel:
        (tmp_path / "a-1-py3-none-any.whl").write_bytes(b"zip")
        package = f"--packages=gs://bkt/b-1.tar.gz,{tmp_path}/a-1-py3-none-any.whl"
    command = ["submit", "digits_1", package, "--module-name=trainer.task", "--region=us-central1"]
    result = installation.run(*command, "--runtime-version=2.21", "--check")
    assert "ok   job file of digits_1" in result.output
    assert "packageUris" not in result.output
    assert installation.objects.created("gs://the-bucket/", 9) == ()
    broken = installation.run(*command[:2], f"--package-path={tmp_path}", *command[3:], "--check")
    assert "is not a Python package" in str(broken.exception)


def test_submit_of_invalid_job_reports_every_problem_and_sends_nothing(
    installation: Installation,
) -> None:
    result = installation.run("submit", "no-id!", "--region=moon", "--module-name=t")
    assert isinstance(result.exception, PermanentError)
    assert all(field in str(result.exception) for field in ("jobId", "region", "packageUris"))
    assert installation.store.recent_jobs(9) == ()


def test_submit_with_used_job_id_is_refused(installation: Installation, tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    assert installation.run("submit", str(file)).exit_code == 0
    again = installation.run("submit", str(file))
    assert isinstance(again.exception, PermanentError)
    assert "A job with this id already exists." in str(again.exception)


def test_async_is_accepted_but_not_together_with_waiting(
    installation: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    assert isinstance(
        installation.run("submit", str(file), "--async", "--stream-logs").exception, PermanentError
    )
    assert installation.run("submit", str(file), "--async").exit_code == 0


def test_wait_for_cancelled_job_exits_with_status_1(
    installation: Installation, tmp_path: Path
) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    installation.run("submit", str(file))
    record(CancelRequested("digits_1", "me", START), installation.deps)
    result = installation.run("jobs", "wait", "digits_1")
    assert (result.exit_code, result.stdout) == (
        1,
        "digits_1: CANCELLED: Job is cancelled by the user\n",
    )
    assert "digits_1: CANCELLED" in result.stderr


def test_cancel_may_be_repeated_but_needs_a_job(installation: Installation, tmp_path: Path) -> None:
    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    installation.run("submit", str(file))
    for _ in range(2):
        result = installation.run("jobs", "cancel", "digits_1")
        assert (result.exit_code, result.stdout) == (0, "digits_1: CANCELLED\n")
    unknown = installation.run("jobs", "cancel", "unknown_1")
    assert isinstance(unknown.exception, PermanentError)


def test_job_ids_are_completed(installation: Installation, tmp_path: Path) -> None:
    from trainmaster.cli.options import complete_job_id

    file = tmp_path / "digits.yaml"
    file.write_text(yaml.safe_dump({"jobId": "digits_1", **a_spec()}))
    installation.run("submit", str(file))
    assert (complete_job_id("dig"), complete_job_id("x")) == (["digits_1"], [])


MANIFESTS = Path(__file__).parents[2] / "unit" / "jobspec" / "manifests"


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


CONFIGS = Path(__file__).parents[1] / "entrances" / "files"


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


def test_submit_without_a_job_names_what_is_missing(installation: Installation) -> None:
    assert "name a job file" in str(installation.run("submit", "--region=us-central1").exception)


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
