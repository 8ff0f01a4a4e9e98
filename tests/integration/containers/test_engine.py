"""The engine of these tests has the features that the other tests rely on."""

from __future__ import annotations

import subprocess

import pytest

from tests.integration.containers.engine import Engine

pytestmark = [
    pytest.mark.heavy(
        fact="the engine of the other tests pulls, runs and limits containers",
        quick="nothing: it is the engine itself",
    ),
    pytest.mark.timeout(600),
]


def test_published_image_is_pulled_and_run(engine: Engine) -> None:
    uri = engine.publish(engine.debian("bookworm"), "python:1")
    output = engine.docker(
        "run", "--rm", "--network", "host", uri, "python3", "-c", "print(6 * 7)", within_s=300
    )
    assert output == "42"


def test_missing_image_fails_with_the_registrys_message(engine: Engine) -> None:
    absent = f"{engine.registry}/missing:1"
    with pytest.raises(AssertionError, match="manifest unknown"):
        engine.docker("pull", absent)


def test_memory_limit_kills_the_container_and_the_engine_reports_it(engine: Engine) -> None:
    eat = "x = [bytearray(1 << 20) for _ in range(200)]"
    limits = ["--memory=64m", "--memory-swap=64m"]
    container = engine.docker("create", *limits, engine.debian("bookworm"), "python3", "-c", eat)
    try:
        subprocess.run(
            ["docker", "start", "--attach", container], env=engine.environment, check=False
        )
        state = engine.docker(
            "inspect", "--format", "{{.State.OOMKilled}} {{.State.ExitCode}}", container
        )
    finally:
        # Other tests expect that their own containers are the only ones.
        engine.docker("rm", "--force", container)
    assert state == "true 137"
