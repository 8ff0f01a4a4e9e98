"""The functions, each under functions-framework as in production: a process of its own that may die at any time."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from emulators.stack.service import Service
from emulators.stack.state import StackError

# Answered with 404 by functions-framework itself as soon as the function is loaded; the function is not called.
HEALTH: Final = "/robots.txt"
# Requests one process serves at a time; production's is the same order.
THREADS: Final = 8


def services(folder: Path, ports: Mapping[str, int], environment: Mapping[str, str]) -> list[Service]:
    """One service per function (name to port). Raises StackError where a function's file is missing."""
    missing = [name for name in ports if not (folder / f"{name}.py").is_file()]
    if missing:
        raise StackError(f"no such function in {folder}: {', '.join(missing)}")
    return [
        Service(
            name,
            [
                sys.executable, "-m", "functions_framework", "--source", str(folder / f"{name}.py"), "--target", name,
                "--signature-type", "http", "--host", "127.0.0.1", "--port", str(port),
            ],
            {**environment, "THREADS": str(THREADS), "K_SERVICE": name},
            port=port,
            health=HEALTH,
            restartable=True,
        )
        for name, port in ports.items()
    ]  # fmt: skip
