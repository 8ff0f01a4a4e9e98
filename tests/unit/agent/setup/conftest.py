from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.workspace import EMULATED_VM, Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    """Return the agent's folder on the disk of a local VM, with folders for its home and for
    temporary files beside it.
    """
    disk = tmp_path / "disk"
    (disk / "home" / "trainmaster").mkdir(parents=True)
    (disk / "tmp").mkdir()
    environ = {
        "HOME": str(disk / "home"),
        "TMPDIR": str(disk / "tmp"),
        EMULATED_VM: str(tmp_path),
        "PATH": os.environ["PATH"],
    }
    return Workspace(disk / "home" / "trainmaster", environ, Console())
