"""The two engines' command lines, where they differ, and what an accelerator needs of them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shared.agent.program import container_engine
from shared.agent.program.container_engine import Engine, EngineError

DOCKER = Engine("/usr/bin/docker", "vm")
PODMAN = Engine("/usr/bin/podman", "vm")


def test_credentials_are_shown_to_each_engine_in_its_way() -> None:
    folder = Path("/w/credentials")
    assert DOCKER.pull_command("i", folder) == ["/usr/bin/docker", "--config", "/w/credentials", "pull", "i"]
    assert PODMAN.pull_command("r.io/i", folder)[1:] == ["pull", "--authfile", "/w/credentials/config.json", "r.io/i"]
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
def test_a_name_without_a_registry_is_docker_hubs_for_both(image: str, full: str) -> None:
    assert DOCKER.pull_command(image, None)[-1] == DOCKER.run_command("n", [], image, [])[-1] == image
    assert PODMAN.pull_command(image, None)[-1] == PODMAN.run_command("n", [], image, [])[-1] == full


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
def test_a_container_gets_the_machines_accelerators(
    monkeypatch: pytest.MonkeyPatch, which: Engine, gpu: bool, tpu: bool, options: list[str]
) -> None:
    monkeypatch.setattr(container_engine, "has_gpu", lambda: gpu)
    monkeypatch.setattr(container_engine, "has_tpu", lambda: tpu)
    command = which.run_command("n", ["--env", "A"], "r.io/image", ["-v"])
    found = [word for word in command if word in ("--gpus", "all", "--device", "nvidia.com/gpu=all", "--privileged")]
    assert found == options
    assert command[-4:] == ["--env", "A", "r.io/image", "-v"]


def test_docker_is_preferred_and_nothing_is_an_answer_too(tmp_path: Path) -> None:
    for name in ("docker", "podman"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    found = Engine.find({"PATH": str(tmp_path)}, "vm")
    assert found is not None
    assert not found.is_podman
    (tmp_path / "docker").unlink()
    found = Engine.find({"PATH": str(tmp_path)}, "vm")
    assert found is not None
    assert found.is_podman
    assert Engine.find({"PATH": os.devnull}, "vm") is None


def test_an_engine_that_does_not_answer_is_no_missing_image(tmp_path: Path) -> None:
    find_startup_timeouts = tmp_path / "docker"
    find_startup_timeouts.write_text("#!/bin/sh\necho 'Cannot connect to the Docker daemon' >&2\nexit 1\n")
    find_startup_timeouts.chmod(0o755)
    away = Engine(str(find_startup_timeouts), "vm")
    with pytest.raises(EngineError, match="Cannot connect"):
        away.has("image")
    assert away.inspect("name") is None
    assert away.remove_left() == 0
    gone = Engine(str(tmp_path / "nothing"), "vm")
    with pytest.raises(EngineError):
        gone.has("image")
    gone.remove("name")
