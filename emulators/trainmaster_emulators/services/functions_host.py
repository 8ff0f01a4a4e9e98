"""The functions as services of the stack.

Each runs under functions-framework in its own process, as in production.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from trainmaster_emulators.process.processes import LOOPBACK
from trainmaster_emulators.process.service import Service
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.process.state import StackError

HEALTH: Final = "/robots.txt"
"""functions-framework itself returns 404 for this path as soon as the function is loaded, without
calling it.
"""
THREADS: Final = 8
"""Concurrent requests of one process, of the same order as in production."""

OWN_FUNCTIONS: Final = StackConfig().functions_dir
SHARED_MODULES: Final = (
    "google.cloud.firestore",
    "google.pubsub_v1.services.publisher.transports",
    "trainmaster.wiring.authentication",
    "trainmaster.wiring.intake_deps",
)
"""Modules that most of our own functions import."""


def import_shared_modules(folder: Path) -> None:
    """Import what the functions in this folder import.

    The supervisor does it once, and then forks the functions.
    """
    names = ["trainmaster_emulators.services.function_server", "functions_framework._http.gunicorn"]
    if folder == OWN_FUNCTIONS:
        names += SHARED_MODULES
    for name in names:
        importlib.import_module(name)


def services(
    folder: Path,
    ports: Mapping[str, int],
    environment: Mapping[str, str],
    extra: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
    *,
    push_time_scale: float | None = None,
) -> list[Service]:
    """Return one service per function.

    `ports`: function → port. `extra`: function → additional variables.

    `push_time_scale`: delay requests after failures, by as many times the delays of Pub/Sub; None:
    no delays, for functions without a topic.

    Raises StackError where a function's file is missing.
    """
    missing = [name for name in ports if not (folder / f"{name}.py").is_file()]
    if missing:
        raise StackError(f"missing functions in {folder}: {', '.join(missing)}")
    return [
        Service(
            name,
            _command(name, folder, push_time_scale),
            {**environment, **extra.get(name, {}), "THREADS": str(THREADS), "K_SERVICE": name},
            address=f"{LOOPBACK}:{port}",
            health=HEALTH,
            restartable=True,
            keeps_socket=True,
        )
        for name, port in ports.items()
    ]


def _command(name: str, folder: Path, push_time_scale: float | None) -> list[str]:
    command = [sys.executable, "-P", "-m", "trainmaster_emulators.services.function_server"]
    command += ["--source", str(folder / f"{name}.py")]
    command += ["--target", name]
    if push_time_scale is not None:
        command += ["--push-time-scale", str(push_time_scale)]
    return command
