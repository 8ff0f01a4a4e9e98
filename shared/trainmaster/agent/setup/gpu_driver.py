"""Waiting for the GPU driver, so that no job pays for a GPU that its program cannot use.

Some images install a driver at their first boot, minutes after the agent has started. Others have a
driver that does not support the GPU: the open kernel modules of today's Deep Learning VM images
begin with Turing, so a V100 or P4 needs an image with NVIDIA's proprietary driver. Source: NVIDIA's
driver installation guide, "Kernel Modules".
"""

from __future__ import annotations

import time
from collections.abc import Callable

from trainmaster.agent.program.devices import lacks_gpu_driver
from trainmaster.agent.setup.setup_errors import new_setup_error
from trainmaster.agent.workspace import Workspace

WAIT_S = 600  # twice as long as an installation at the first boot takes
POLL_S = 5  # between two looks


def wait_for_driver(workspace: Workspace, pause: Callable[[float], object] = time.sleep) -> None:
    """Wait until a driver serves the VM's GPU, if it has one. Raises SetupError after WAIT_S."""
    if not lacks_gpu_driver():
        return
    workspace.log("This VM's GPU has no driver yet: waiting until one is installed.")
    for _ in range(0, WAIT_S, POLL_S):
        pause(POLL_S)
        if not lacks_gpu_driver():
            return
    problem = (
        "this VM's GPU has no driver: use an image with a driver that supports it"
        " (the default images have none for V100 and P4)"
    )
    raise new_setup_error("DriverError", problem, transient=False)
