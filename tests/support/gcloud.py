"""The real gcloud, and the environment in which it calls emulators."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ANY_TOKEN = "not-a-secret"
SERVER = Path(__file__).with_name("gcloud_server.py")


def gcloud_environment(
    folder: Path, project: str, endpoints: dict[str, str], token: str = ANY_TOKEN
) -> dict[str, str]:
    """Return an environment with a configuration in `folder`, and with nothing of the user's own.

    `endpoints`: API, as gcloud's properties name it, and its address.
    """
    token_file = folder / "token"
    token_file.write_text(token)
    return {
        **_without_gcloud(os.environ),
        "CLOUDSDK_CONFIG": str(folder / "config"),
        "CLOUDSDK_AUTH_ACCESS_TOKEN_FILE": str(token_file),
        **{
            f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{api.upper()}": f"{address}/"
            for api, address in endpoints.items()
        },
        "CLOUDSDK_CORE_PROJECT": project,
        "CLOUDSDK_CORE_DISABLE_PROMPTS": "1",
        "CLOUDSDK_CORE_DISABLE_USAGE_REPORTING": "1",
        "CLOUDSDK_COMPONENT_MANAGER_DISABLE_UPDATE_CHECK": "1",
    }


def run_gcloud(
    *arguments: str, environment: Mapping[str, str], folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of the real gcloud in `folder`. The test's own timeout is its limit."""
    with tempfile.TemporaryDirectory() as outputs:
        files = [Path(outputs) / name for name in ("out", "err")]
        command = {
            "arguments": arguments,
            "environment": dict(environment),
            "folder": str(folder or outputs),
            "outputs": [str(file) for file in files],
        }
        status = _run(json.dumps(command))
        return subprocess.CompletedProcess(
            ("gcloud", *arguments), status, *(file.read_text() for file in files)
        )


def _run(command: str) -> int:
    """Return the exit status of a command.

    A command that a timeout of pytest interrupts ends with its server.
    """
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    try:
        server.stdin.write(f"{command}\n")
        server.stdin.flush()
        return int(server.stdout.readline())
    except BaseException:
        server.kill()
        _server.cache_clear()
        raise


@cache
def _server() -> subprocess.Popen[str]:
    """Start gcloud's interpreter with our server in place of gcloud's own program.

    It ends with this process.
    """
    configuration = tempfile.mkdtemp()
    atexit.register(shutil.rmtree, configuration)
    variables = {"CLOUDSDK_PYTHON_ARGS": f"-S {SERVER.name}", "CLOUDSDK_CONFIG": configuration}
    environment = {**_without_gcloud(os.environ), **variables}
    server = subprocess.Popen(
        ["gcloud"],
        env=environment,
        cwd=SERVER.parent,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(server.kill)
    return server


def _without_gcloud(variables: Mapping[str, str]) -> dict[str, str]:
    return {
        name: value
        for name, value in variables.items()
        if not name.startswith(("CLOUDSDK_", "GOOGLE_"))
    }
