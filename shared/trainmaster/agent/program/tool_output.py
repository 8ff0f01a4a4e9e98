"""The output of a short program of the image, such as nvidia-smi."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_S = 10.0


def tool_output(command: Sequence[str]) -> str:
    """Return what the program prints. Raises OSError or SubprocessError, also if it fails or takes TIMEOUT_S."""
    return subprocess.run(
        list(command),
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=TIMEOUT_S,
        encoding="utf-8",
        errors="replace",
    ).stdout
