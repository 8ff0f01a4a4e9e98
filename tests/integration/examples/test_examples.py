"""The example job files and trainers: they parse, can be packaged and installed, and
train a model.
"""

from __future__ import annotations

import ast
import fcntl
import json
import os
import re
import shutil
import socket
import subprocess
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from zipfile import ZipFile

import pytest
import yaml
from rich.console import Console

from trainmaster.agent.metric.trial_metric import parse_measurements
from trainmaster.agent.model.results import Measurement
from trainmaster.client import package_staging
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.reading.parse_document import parse_document
from trainmaster_emulators.machines.vm_python import create_overlay
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_local.cli.example_stack import RunningStack
from trainmaster_local.cli.example_upload import upload
from trainmaster_local.cli.job_monitor import Report
from trainmaster_local.memory.objects import MemoryObjects

HEAVY = pytest.mark.heavy(
    fact="trainers of the examples learn, and resume",
    quick=(
        "`e2e/jobs/test_local_run.py` with scikit-learn; their packages and flags in the same"
        " module"
    ),
)

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "examples"
ALL_JOB_FILES = sorted(EXAMPLES.glob("*/job.yaml"))
JOB_FILES = [path for path in ALL_JOB_FILES if not path.parent.name.startswith("algorithm_")]
"""Those with a package; tests/integration/algorithms has the tests of the others."""
TRAINERS = sorted(path.parent.name for path in EXAMPLES.glob("*/trainer"))


def files_of(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if "__pycache__" not in path.parts}


_of_other_builds = shutil.ignore_patterns("*-0.*", "*.egg-info", "dist", "build")


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a function that returns the archive of a trainer, which is built once and leaves
    nothing else behind.
    """

    @cache
    def build(trainer: str) -> Path:
        folder = tmp_path_factory.mktemp(trainer)
        # A copy: local stacks of other tests build the same example at the same time.
        example = folder / "example"
        shutil.copytree(EXAMPLES / trainer, example, ignore=_of_other_builds)
        before = files_of(example)
        [archive] = package_staging.build(example / "trainer", folder / "out")
        assert files_of(example) == before
        return archive

    return build


def module_of(training: dict[str, Any]) -> str:
    """Return the job's own module, also if a launcher such as torchrun starts it."""
    args = training["args"]
    return str(args[args.index("-m") + 1] if "-m" in args else training["pythonModule"])


def trainer_and_archive(training: dict[str, Any]) -> tuple[str, str]:
    """Return the folder of the example's trainer, and the name of its package."""
    (uri,) = training["packageUris"]
    match = re.fullmatch(r"gs://trainmaster-local/packages/(\w+)/([\w.-]+)", uri)
    assert match
    trainer, archive = match.groups()
    return trainer, archive


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.parent.name)
def test_job_file_names_an_existing_trainer_and_its_archive(
    path: Path, built: Callable[[str], Path]
) -> None:
    training: dict[str, Any] = yaml.safe_load(path.read_text())["trainingInput"]
    trainer, archive = trainer_and_archive(training)
    assert built(trainer).name == archive
    module = module_of(training)
    assert (EXAMPLES / trainer / (module.replace(".", "/") + ".py")).is_file()
    assert training["jobDir"].startswith("gs://trainmaster-local/")
    assert all(isinstance(argument, str) for argument in training["args"])
    version = training.get("runtimeVersion", "")
    assert isinstance(version, str)  # without quotes, 2.20 would be the number 2.2


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.parent.name)
def test_job_file_is_accepted_without_substitutions(path: Path) -> None:
    plan = accept(parse_document(path.read_bytes(), path.name), default_job_id="example_1").plan
    on_tpu = any(group.tpu for group in plan.groups)
    # TPUs use another build of TensorFlow, which is a substitution.
    if path.parent.name != "legacy" and not on_tpu:
        assert plan.origin.substitutions == ()


@pytest.mark.parametrize("path", JOB_FILES, ids=lambda path: path.parent.name)
def test_job_file_passes_only_flags_that_its_trainer_has(path: Path) -> None:
    training = yaml.safe_load(path.read_text())["trainingInput"]
    trainer, _ = trainer_and_archive(training)
    flags = {
        str(argument.value)
        for module in (EXAMPLES / trainer / "trainer").glob("*.py")
        for call in ast.walk(ast.parse(module.read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr == "add_argument"
        for argument in call.args
        if isinstance(argument, ast.Constant)
    }
    tuned = {
        f"--{param['parameterName']}"
        for param in training.get("hyperparameters", {}).get("params", ())
    }
    args = training["args"]
    own = args[args.index("-m") + 1 :] if "-m" in args else args
    assert {argument for argument in own if argument.startswith("--")} | tuned <= flags
    assert "--job-dir" in flags


def test_local_run_uploads_the_package_to_the_uri_in_the_job_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")  # without gsutil, it uses the Objects port
    objects = MemoryObjects()
    on = SimpleNamespace(objects=objects, state=SimpleNamespace(config=StackConfig()))
    for example in ("legacy", "tf_evaluator"):
        upload(example, cast("RunningStack", on), Report(Console(quiet=True)))
    packages = (
        "packages/digits/digits_trainer-0.1.tar.gz",
        "packages/tf_strategies/trainer-1.0-py3-none-any.whl",
    )
    for uri in (*packages, "jobs/legacy.yaml", "jobs/tf_evaluator.yaml"):
        assert objects.read(f"gs://trainmaster-local/{uri}", max_bytes=1 << 20)


def test_readme_table_has_one_row_per_example() -> None:
    text = (EXAMPLES / "README.md").read_text()
    rows = set(re.findall(r"^\| \[(\w+)\]\((\w+)/job\.yaml\) \|", text, re.MULTILINE))
    assert rows == {(path.parent.name, path.parent.name) for path in ALL_JOB_FILES}


def test_job_files_contain_no_job_id() -> None:
    assert ALL_JOB_FILES
    assert not [path for path in ALL_JOB_FILES if "jobId" in yaml.safe_load(path.read_text())]


@pytest.mark.parametrize("trainer", TRAINERS)
def test_package_contains_only_the_trainer_and_building_leaves_no_files(
    trainer: str, built: Callable[[str], Path]
) -> None:
    archive = built(trainer)
    if archive.suffix == ".whl":
        names = {name for name in ZipFile(archive).namelist() if ".dist-info/" not in name}
    else:
        with tarfile.open(archive) as content:
            files = [
                member.name.partition("/")[2] for member in content.getmembers() if member.isfile()
            ]
        names = set(files) - {"PKG-INFO", "setup.cfg", "setup.py"}
    assert names == {
        f"trainer/{path.name}" for path in (EXAMPLES / trainer / "trainer").glob("*.py")
    }


def test_package_installs_without_a_package_index(
    tmp_path: Path, tensorflow_image: Path, built: Callable[[str], Path]
) -> None:
    archive = built("digits")
    python = create_overlay(tensorflow_image, tmp_path / "python") / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-index"]
    environment = {**os.environ, "PYTHONUSERBASE": str(tmp_path / "user"), "PIP_NO_CACHE_DIR": "1"}
    command = [*pip, "--user", "--no-build-isolation", str(archive)]
    ran = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=100, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert list((tmp_path / "user").rglob("site-packages/trainer/task.py"))


def run_trainer(
    image: Path, trainer: str, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    command = [str(image / "bin" / "python"), "-m", "trainer.task", *arguments]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", **variables}
    folder = EXAMPLES / trainer
    return subprocess.run(
        command,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


@HEAVY  # tests/e2e/jobs/test_local_run.py runs it on a VM
def test_scikit_learn_trainer_stores_an_accurate_model(
    tmp_path: Path, tensorflow_image: Path
) -> None:
    ran = run_trainer(tensorflow_image, "sklearn_digits", "--job-dir", str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    assert json.loads((tmp_path / "metrics.json").read_text())["accuracy"] > 0.98
    assert (tmp_path / "model.joblib").stat().st_size > 0


def test_tuning_trainer_reports_its_metric_in_the_format_that_the_agent_reads(
    tmp_path: Path, scikit_learn_image: Path
) -> None:
    hyperparameters = {"learning_rate": 0.02, "hidden_units": 24, "activation": "tanh"}
    arguments = [f"--{name}={value}" for name, value in hyperparameters.items()]
    metric_file = tmp_path / "metric" / "output.metrics"
    ran = run_trainer(
        scikit_learn_image,
        "tuning_digits",
        "--job-dir",
        str(tmp_path),
        "--epochs",
        "6",
        *arguments,
        CLOUD_ML_HP_METRIC_FILE=str(metric_file),
        CLOUD_ML_TRIAL_ID="3",
    )
    assert ran.returncode == 0, ran.stderr
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["accuracy"] > 0.9
    assert hyperparameters.items() <= metrics.items()
    assert (tmp_path / "model.joblib").stat().st_size > 0
    *_, last = parse_measurements(metric_file.read_text(), "accuracy")
    assert last == Measurement(metrics["accuracy"], 6)


@HEAVY
def test_digits_trainer_resumes_from_its_backup_and_has_nothing_left_to_train_after_its_end(
    tmp_path: Path, tensorflow_image: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as held:
        address = f"127.0.0.1:{held.getsockname()[1]}"
    config = {
        "cluster": {"chief": [address]},
        "task": {"type": "chief", "index": 0},
        "environment": "cloud",
    }
    variables = {"TF_CONFIG": json.dumps(config), "CLOUD_ML_JOB_ID": "digits_1"}
    arguments = ["--job-dir", str(tmp_path), "--epochs", "8"]

    # A file with the name of the model's directory makes the program fail after its last epoch.
    (tmp_path / "model").write_text("in the way")
    failed = run_trainer(tensorflow_image, "digits", *arguments, **variables)
    assert failed.returncode == 1
    assert "epoch 8/8 " in failed.stdout
    (tmp_path / "model").unlink()

    resumed = run_trainer(
        tensorflow_image, "digits", "--job-dir", str(tmp_path), "--epochs", "12", **variables
    )
    assert resumed.returncode == 0, resumed.stderr
    assert "resuming from epoch 9\nepoch 9/12 loss " in resumed.stdout
    metrics = json.loads((tmp_path / "metrics.json").read_text())
    assert metrics["accuracy"] > 0.95
    assert (tmp_path / "model" / "saved_model.pb").is_file()

    again = run_trainer(
        tensorflow_image, "digits", "--job-dir", str(tmp_path), "--epochs", "12", **variables
    )
    assert again.returncode == 0
    assert "epoch" not in again.stdout
    assert json.loads((tmp_path / "metrics.json").read_text()) == metrics


def test_peers_of_the_xgboost_example_are_those_of_the_built_in_algorithm() -> None:
    """A copy, because links that lead out of a folder are not packed."""
    algorithm = ROOT / "shared" / "trainmaster" / "algorithms" / "xgboost_training" / "peers.py"
    example = EXAMPLES / "xgboost_digits" / "trainer" / "peers.py"
    assert example.read_text() == algorithm.read_text()


def test_builds_of_one_folder_wait_for_each_other(tmp_path: Path) -> None:
    """setuptools collects the files of an archive in the folder, under one name for all builds."""
    folder = EXAMPLES / "digits"
    descriptor = os.open(folder, os.O_RDONLY)
    with ThreadPoolExecutor() as pool:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        built = pool.submit(package_staging.build, folder / "trainer", tmp_path)
        assert not wait([built], timeout=4).done
        os.close(descriptor)
        assert len(built.result()) == 1
