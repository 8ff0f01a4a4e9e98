"""What the two wheels contain, and what users meet when they have installed them."""

from __future__ import annotations

import json
import subprocess
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.package.conftest import Installation, required_distributions
from trainmaster_emulators.checkout import ROOT
from trainmaster_local.cli.images import Runtime

HEAVY = pytest.mark.heavy(
    fact="an installed package runs a local stack beside folders of the same names",
    quick="files of the wheel in the same module, `integration/cli` from the checkout",
)

FOLDERS = ("algorithms", "cli", "emulators", "functions", "infra", "shared", "simulator")
"""Names of our folders, past and present, that a user's own project may have."""
CHECKOUT = "trainmaster/_checkout/"
USE_CLIENT = """
import trainmaster
for name in trainmaster.__all__:
    getattr(trainmaster, name)
client = trainmaster.Client("my-project", "http://127.0.0.1:1")
try:
    client.submit("job.yaml", folder=".", command=["true"])
except trainmaster.InvalidJobError as error:
    print(error)
from trainmaster.wiring.objects import objects
objects()  # `submit(folder=…)` uploads with it
"""
USE_TESTING = """
from trainmaster_local.testing import Installation
installation = Installation()
job = installation.client.submit("job.yaml")
installation.start(job)
installation.exit(job, "chief-0", 0)
print(installation.client.wait(job).state)
"""
JOB_FILE = """
jobId: digits_1
trainingInput: {region: us-central1, runtimeVersion: "2.21", pythonModule: trainer.task,
  packageUris: ["gs://my-bucket/digits.tar.gz"]}
"""
OWN_PROJECT = """
import json, trainmaster.client.client, trainmaster.cli.main, trainmaster_emulators.stack.stack
{imports}
print(json.dumps([trainmaster.__file__, {names}]))
"""
CLIENT_DISTRIBUTIONS_MAX = 30
"""Of which 15 come with google-cloud-storage and google-auth."""

Install = Callable[[str], Installation]


def sources(*folders: str) -> set[str]:
    return {
        str(path.relative_to(ROOT / folder))
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".md"
    }


def packaged(wheel: Path) -> set[str]:
    names = zipfile.ZipFile(wheel).namelist()
    return {name for name in names if ".dist-info/" not in name and not name.startswith(CHECKOUT)}


def test_each_wheel_has_its_packages_and_nothing_else(wheel: Path, local_wheel: Path) -> None:
    assert packaged(wheel) == sources("shared")
    local = packaged(local_wheel)
    assert {name.partition("/")[0] for name in local} == {
        "trainmaster_emulators",
        "trainmaster_local",
    }
    assert local == sources("emulators") - {"pyproject.toml"}


def test_wheel_has_the_files_that_a_local_stack_reads(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        copies = {
            name.removeprefix(CHECKOUT): name
            for name in archive.namelist()
            if name.startswith(CHECKOUT)
        }
        functions = {str(path.relative_to(ROOT)) for path in (ROOT / "functions").glob("*.py")}
        images = {f"requirements/runtime-{runtime}.txt" for runtime in Runtime}
        assert set(copies) == functions | images | {"infra/grants.csv", "infra/iam.tf"}
        for name, copy in copies.items():
            assert archive.read(copy) == (ROOT / name).read_bytes()


@pytest.mark.parametrize(
    "init",
    [
        pytest.param(True, id="with __init__.py"),
        pytest.param(False, id="without __init__.py", marks=HEAVY),
    ],
)
def test_project_with_folders_of_our_names_works(
    install: Install, tmp_path: Path, *, init: bool
) -> None:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "own.py").write_text(f"NAME = {folder!r}\n", encoding="utf-8")
        if init:
            (tmp_path / folder / "__init__.py").touch()
    imports = "\n".join(f"from {folder} import own as {folder}" for folder in FOLDERS)
    names = ", ".join(f"{folder}.NAME" for folder in FOLDERS)
    (tmp_path / "train.py").write_text(
        OWN_PROJECT.format(imports=imports, names=names), encoding="utf-8"
    )
    installation = install("local")
    done = installation.run("python", "train.py", cwd=tmp_path)
    assert not done.stderr
    package, *own = json.loads(done.stdout)
    assert own == list(FOLDERS)
    assert package.startswith(str(installation.folder))


def test_client_works_without_an_extra(install: Install, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("trainingInput: !moon {region: moon}", encoding="utf-8")
    done = install("").run(
        "python", "-c", USE_CLIENT, cwd=tmp_path, STORAGE_EMULATOR_HOST="http://127.0.0.1:1"
    )
    assert "the tag !moon" in done.stdout
    assert not done.stderr
    assert len(required_distributions("")) <= CLIENT_DISTRIBUTIONS_MAX


@pytest.mark.parametrize(
    ("extra", "command", "remedy"),
    [
        (
            "",
            "jobs",
            (
                "trainmaster: the command line needs typer. Install it in a checkout: pip install"
                " '.[cli]'\n"
            ),
        ),
        ("cli", "local", "Install it in a checkout: pipx install --force '.[local]'\n"),
        ("cli", "simulate", "Install it in a checkout: pipx install --force '.[local]'\n"),
        ("cli", "jobs advise", "Install it in a checkout: pipx install --force '.[local]'\n"),
        ("cli", "tensorboard", "pipx install --force '.[tensorboard]'"),
    ],
)
def test_command_without_its_extra_names_the_command_that_installs_it(
    install: Install, tmp_path: Path, extra: str, command: str, remedy: str
) -> None:
    done = install(extra).run(
        "trainmaster",
        *command.split(),
        *(["job"] if command == "tensorboard" else []),
        cwd=tmp_path,
    )
    assert done.returncode == 1
    assert remedy in done.stderr
    assert "Traceback" not in done.stderr


def test_command_line_lists_all_commands_without_the_local_stack(
    install: Install, tmp_path: Path
) -> None:
    done = install("cli").run("trainmaster", "--help", cwd=tmp_path)
    assert not done.returncode, done.stderr
    assert "simulate" in done.stdout


def test_local_distribution_has_its_commands_and_the_installation_for_tests(
    install: Install, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(JOB_FILE, encoding="utf-8")
    installation = install("local")
    done = installation.run("trainmaster", "simulate", "job.yaml", "--seeds", "2", cwd=tmp_path)
    assert not done.returncode, done.stderr
    done = installation.run("python", "-c", USE_TESTING, cwd=tmp_path)
    assert (done.stdout, done.stderr) == ("SUCCEEDED\n", "")


def test_both_distributions_have_one_version() -> None:
    projects = [
        tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        for folder in (ROOT, ROOT / "emulators")
    ]
    client, local = projects
    assert client["version"] == local["version"]
    assert f"trainmaster[cli]=={client['version']}" in local["dependencies"]


@HEAVY
@pytest.mark.emulator
@pytest.mark.slow
def test_local_stack_runs_from_an_empty_folder_and_is_found_from_another(
    install: Install, tmp_path: Path
) -> None:
    installation, elsewhere = install("local"), tmp_path / "elsewhere"
    elsewhere.mkdir()

    def local(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
        return installation.run(
            "trainmaster", "local", *arguments, cwd=cwd, XDG_STATE_HOME=str(tmp_path / "home")
        )

    assert local("env", cwd=elsewhere).returncode == 1
    try:
        up = local("up", "--detach", "--realistic", "--time-scale", "0.1", cwd=tmp_path)
        assert up.returncode == 0, up.stderr
        assert (
            f"export TRAINMASTER_STATE_DIR={tmp_path}/.state/local"
            in local("env", cwd=elsewhere).stdout
        )
        stack = json.loads(local("status", "--format", "json", cwd=elsewhere).stdout)
        assert stack["status"] == "ready"
        assert Path(stack["config"]["functions_dir"]).is_relative_to(installation.folder)
        assert all(service["alive"] for service in stack["services"].values())
    finally:
        down = local("down", cwd=tmp_path)
    assert down.returncode == 0
    assert local("status", cwd=elsewhere).returncode == 1
