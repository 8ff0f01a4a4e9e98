"""Ending this machine from inside. A VM of Compute Engine that shuts down is stopped, and its CPUs
and GPUs are no longer paid for.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Mapping

from trainmaster.agent.workspace import EMULATED_VM, Workspace

COMMANDS = (("systemctl", "poweroff"), ("shutdown", "-h", "now"), ("poweroff",))
"""The first one that exists and succeeds ends the machine, as its owner's stop does: with the
shutdown script, and SIGTERM for all.
"""
COMMAND_S = 60.0  # timeout of one command


def power_off(workspace: Workspace) -> None:
    """Shut this machine down. An emulated VM shares it with others, and costs nothing."""
    environ: Mapping[str, str] = workspace.environ
    if EMULATED_VM in environ:
        workspace.log("An emulated VM stays on.")
        return
    for name, *arguments in COMMANDS:
        program = shutil.which(name, path=environ.get("PATH"))
        if program is None:
            continue
        try:
            result = subprocess.run(
                [program, *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=COMMAND_S,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            workspace.log(f"{name} failed: {error}")
            continue
        if result.returncode == 0:
            return
        workspace.log(f"{name} failed: {result.stderr.strip()}")
