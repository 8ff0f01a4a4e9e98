"""The runtime's packages: only missing ones are installed, before the job's packages."""

from __future__ import annotations

import os
from importlib.metadata import version
from pathlib import Path

import pytest

from trainmaster.agent.setup.runtime_packages import is_another_build, is_satisfied

from .support.cloud import Cloud
from .support.packages import wheel_of
from .support.vm import Vm

TRAINER = "gs://b/trainer-0.1-py3-none-any.whl"
PYTEST = version("pytest")
MAJOR = PYTEST.split(".")[0]


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        (f"pytest=={PYTEST}", True),
        (f"pytest=={MAJOR}.*", True),
        (f"PyTest[dev, extra-things] == {MAJOR}.*", True),
        (f"pytest=={MAJOR}", False),
        (f"pytest=={MAJOR}9.*", False),
        ("pytest==0.*", False),
        ("no-such-thing==1.*", False),
        (f"pytest>={MAJOR}", False),
        ("pytest", False),
    ],
)
def test_requirement_is_satisfied_by_the_installed_version(
    requirement: str, expected: bool
) -> None:
    assert is_satisfied(requirement) is expected


def test_local_build_satisfies_its_public_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "trainmaster.agent.setup.runtime_packages.installed_version", lambda _: "2.13.0+cpu"
    )
    assert is_satisfied("torch==2.13.*")
    assert not is_satisfied("torch==2.1.*")


@pytest.mark.parametrize(
    ("torch", "requirement", "expected"),
    [
        ("2.13.0+cpu", "torchvision==0.28.*", True),
        ("2.13.0+cpu", "torchaudio==2.11.*", True),
        ("2.13.0+cpu", "torchmetrics==1.*", False),
        ("2.13.0+cpu", "torch==2.9.*", False),
        ("2.13.0+cu130", "torchvision==0.28.*", False),
        ("2.13.0", "torchvision==0.28.*", False),
        ("", "torchvision==0.28.*", False),
    ],
)
def test_companions_of_a_torch_for_cpus_are_builds_for_cuda(
    torch: str, requirement: str, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = {"torch": torch}
    monkeypatch.setattr(
        "trainmaster.agent.setup.runtime_packages.installed_version",
        lambda name: versions.get(name, ""),
    )
    assert is_another_build(requirement) is expected


def test_pip_does_not_run_for_satisfied_requirements(cloud: Cloud, vm: Vm) -> None:
    vm.program("print('TRAINED')")
    vm.configure(packages=[f"pip[and-more]=={version('pip').partition('.')[0]}.*"])
    cloud.direct(attempt=1, incarnation=1)
    vm.boot()
    assert cloud.wait_for_message("replica-exit").body["exit_status"] == 0
    assert not any(b"pip3" in line for line in vm.console)


def test_unknown_requirement_is_a_permanent_failure(cloud: Cloud, offline: Vm) -> None:
    offline.configure(packages=["framework==9.*"])
    cloud.direct(attempt=1, incarnation=1)
    offline.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert (body["cause"], body["exit_status"], body["error"]["type"]) == (
        "install",
        1,
        "PackageError",
    )
    assert "No matching distribution found for framework==9.*" in body["error"]["message"]


def test_unreachable_package_index_is_a_transient_failure(cloud: Cloud, offline: Vm) -> None:
    offline.environ.update(
        PIP_INDEX_URL="http://127.0.0.1:1/simple", PIP_RETRIES="1", PIP_CONFIG_FILE=os.devnull
    )
    del offline.environ["PIP_NO_INDEX"]
    offline.configure(packages=["framework==9.*"])
    cloud.direct(attempt=1, incarnation=1)
    offline.boot()
    assert cloud.wait_for_message("replica-exit").body["cause"] == "setup"


def test_missing_framework_is_installed_once_and_first_and_no_package_replaces_its_build(
    cloud: Cloud, offline: Vm, tmp_path: Path
) -> None:
    shelf = tmp_path / "shelf"
    shelf.mkdir()
    # Name and version of each wheel → its requirements, and the build of `tensorflow` in it if any.
    wheels = {
        "tensorflow_tpu-2.20.1": ((), "tpu"),
        "tensorflow-2.20.9": ((), "wrong"),
        "tensorflow_gpu-2.19.0": ((), "wrong"),
        "tf_keras-2.20.1": (("tensorflow<2.21,>=2.20",), ""),
        "old_tools-1.0": (("tensorflow-gpu==2.19.0",), ""),
    }
    for wheel_name, (required, build) in wheels.items():
        name, version = wheel_name.split("-")
        files = (
            {"tensorflow/__init__.py": f"BUILD = {build!r}"}
            if build
            else {f"{name}/__init__.py": ""}
        )
        (shelf / f"{wheel_name}-py3-none-any.whl").write_bytes(
            wheel_of(name, files, version, required)
        )
    offline.environ["PIP_FIND_LINKS"] = str(shelf)
    task = "import os, site, tensorflow as tf; print('TRAINED WITH', tf.BUILD)\n"
    task += (
        "assert os.environ['PATH'].startswith(f'{site.getuserbase()}/bin:'), 'commands of packages'"
    )
    files = {"trainer/__init__.py": "", "trainer/task.py": task}
    cloud.objects[TRAINER] = wheel_of("trainer", files, requires=("old-tools",))
    offline.configure(packages=["tensorflow-tpu[fast]==2.20.*"], package_uris=[TRAINER])
    cloud.direct(attempt=1, incarnation=1)
    offline.boot()
    body = cloud.wait_for_message("replica-exit").body
    assert body["cause"] == "install"
    assert "The user requested (constraint) tensorflow-gpu==2.20.1" in body["tail"]

    cloud.objects[TRAINER] = wheel_of(
        "trainer", files, requires=("TensorFlow[and-cuda]>=2.20", "tf-keras")
    )
    cloud.direct(attempt=1, incarnation=2)
    assert cloud.wait_for_message("replica-exit", (1, 2)).body["exit_status"] == 0
    offline.wait_for_line("TRAINED WITH tpu")
    commands = [line.decode() for line in offline.lines("[trainmaster] Running command: pip3")]
    assert (
        commands[0]
        == "[trainmaster] Running command: pip3 install --user 'tensorflow-tpu[fast]==2.20.*'"
    )
    assert len(commands) == 6, "three for each setup, of which the first one failed"

    cloud.direct(attempt=1, incarnation=3)
    cloud.wait_for_message("replica-exit", (1, 3))
    assert len(offline.lines("[trainmaster] Running command: pip3")) == 6
