"""The command lines of docker and podman: their differences, and options for accelerators."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster.agent.program import container_engine
from trainmaster.agent.program.container_engine import ContainerEngine, EngineError

DOCKER = ContainerEngine("/usr/bin/docker", "vm")
PODMAN = ContainerEngine("/usr/bin/podman", "vm")


def test_pull_command_passes_credentials_in_the_engines_form() -> None:
    folder = Path("/w/credentials")
    assert DOCKER.pull_command("i", folder) == [
        "/usr/bin/docker",
        "--config",
        "/w/credentials",
        "pull",
        "i",
    ]
    assert PODMAN.pull_command("r.io/i", folder)[1:] == [
        "pull",
        "--authfile",
        "/w/credentials/config.json",
        "r.io/i",
    ]
    assert PODMAN.pull_command("r.io/i", None) == ["/usr/bin/podman", "pull", "r.io/i"]


@pytest.mark.parametrize(
    ("image", "full"),
    [
        ("python:3.12", "docker.io/library/python:3.12"),
        ("nvidia/cuda:12.9.0-base-ubuntu22.04", "docker.io/nvidia/cuda:12.9.0-base-ubuntu22.04"),
        ("us-docker.pkg.dev/p/r/i@sha256:0", "us-docker.pkg.dev/p/r/i@sha256:0"),
        ("localhost/i", "localhost/i"),
    ],
)
def test_image_without_a_registry_is_pulled_from_docker_hub(image: str, full: str) -> None:
    assert (
        DOCKER.pull_command(image, None)[-1] == DOCKER.run_command("n", [], image, [])[-1] == image
    )
    assert (
        PODMAN.pull_command(image, None)[-1] == PODMAN.run_command("n", [], image, [])[-1] == full
    )


@pytest.mark.parametrize(
    ("which", "gpu", "tpu", "options"),
    [
        (DOCKER, True, False, ["--gpus", "all"]),
        (PODMAN, True, False, ["--device", "nvidia.com/gpu=all"]),
        (DOCKER, False, True, ["--privileged"]),
        (PODMAN, False, True, ["--privileged"]),
        (DOCKER, False, False, []),
    ],
)
def test_container_gets_the_machines_accelerators(
    monkeypatch: pytest.MonkeyPatch,
    which: ContainerEngine,
    gpu: bool,
    tpu: bool,
    options: list[str],
) -> None:
    monkeypatch.setattr(container_engine, "has_gpu", lambda: gpu)
    monkeypatch.setattr(container_engine, "has_tpu", lambda: tpu)
    command = which.run_command("n", ["--env", "A"], "r.io/image", ["-v"])
    device_options = [
        word
        for word in command
        if word in ("--gpus", "all", "--device", "nvidia.com/gpu=all", "--privileged")
    ]
    assert device_options == options
    assert command[-4:] == ["--env", "A", "r.io/image", "-v"]


@pytest.mark.parametrize(
    ("which", "installed", "options"),
    [
        (DOCKER, ["docker-init"], ["--init"]),
        (DOCKER, ["tini"], []),
        (PODMAN, ["catatonit", "tini"], ["--init", "--init-path", "catatonit"]),
        (PODMAN, ["tini"], ["--init", "--init-path", "tini"]),
        (PODMAN, [], []),
    ],
)
def test_container_gets_an_installed_init_as_process_1(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    which: ContainerEngine,
    installed: list[str],
    options: list[str],
) -> None:
    for name in installed:
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(container_engine, "INIT_FOLDERS", ())
    command = which.run_command("n", [], "r.io/image", [])
    first = command.index("--stop-timeout") + 2
    assert [word.rpartition("/")[2] for word in command[first:-1]] == options


def test_find_prefers_docker_and_returns_none_without_an_engine(tmp_path: Path) -> None:
    for name in ("docker", "podman"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    engine = ContainerEngine.find({"PATH": str(tmp_path)}, "vm")
    assert engine is not None
    assert not engine.is_podman
    (tmp_path / "docker").unlink()
    engine = ContainerEngine.find({"PATH": str(tmp_path)}, "vm")
    assert engine is not None
    assert engine.is_podman
    assert ContainerEngine.find({"PATH": os.devnull}, "vm") is None


def test_engine_that_does_not_answer_raises_instead_of_lacking_an_image(tmp_path: Path) -> None:
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    program.chmod(0o755)
    stopped = ContainerEngine(str(program), "vm")
    with pytest.raises(EngineError, match="Cannot connect"):
        stopped.has_image("image")
    assert stopped.inspect("name") is None
    assert stopped.remove_all() == 0
    missing = ContainerEngine(str(tmp_path / "nothing"), "vm")
    with pytest.raises(EngineError):
        missing.has_image("image")
    missing.remove("name")
