"""The tests' own engine does what the others rely on."""

from __future__ import annotations

import subprocess

import pytest

from tests.integration.containers.engine import Engine

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(600)]


def test_an_image_that_was_published_is_pulled_and_run(engine: Engine) -> None:
    uri = engine.publish(engine.debian("bookworm"), "python:1")
    said = engine.docker("run", "--rm", "--network", "host", uri, "python3", "-c", "print(6 * 7)", within_s=300)
    assert said == "42"


def test_what_the_registry_does_not_have_is_said_in_its_words(engine: Engine) -> None:
    absent = f"{engine.registry}/nobody:1"
    with pytest.raises(AssertionError, match="manifest unknown"):
        engine.docker("pull", absent)


def test_a_memory_limit_ends_a_container_and_the_engine_says_so(engine: Engine) -> None:
    eat = "x = [bytearray(1 << 20) for _ in range(200)]"
    limits = ["--memory=64m", "--memory-swap=64m"]
    container = engine.docker("create", *limits, engine.debian("bookworm"), "python3", "-c", eat)
    subprocess.run(["docker", "start", "--attach", container], env=engine.environment, check=False)
    state = engine.docker("inspect", "--format", "{{.State.OOMKilled}} {{.State.ExitCode}}", container)
    assert state == "true 137"
