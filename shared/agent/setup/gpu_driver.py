"""GPUs are not paid for and left idle: nothing starts on a VM whose GPU no driver has taken.

Some images install a driver at their first boot, minutes after the agent has come up. Others have one that does not
know the GPU: the open kernel modules of today's Deep Learning VM images begin with Turing, so a V100 or P4 needs an
image with NVIDIA's own. Source: NVIDIA's driver installation guide, "Kernel Modules".
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from shared.agent.setup.devices import lacks_driver
from shared.agent.setup.failure import failed

if TYPE_CHECKING:
    from collections.abc import Callable

    from shared.agent.control.workspace import Place

WAIT_S = 600  # twice what an installation at the first boot takes
LOOK_S = 5


def await_driver(place: Place, pause: Callable[[float], object] = time.sleep) -> None:
    """Raises SetupError where none comes."""
    if not lacks_driver():
        return
    place.say("No driver has taken this VM's GPU yet: waiting for one.")
    for _ in range(0, WAIT_S, LOOK_S):
        pause(LOOK_S)
        if not lacks_driver():
            return
    problem = (
        "no driver has taken this VM's GPU: use an image that has one for it"
        " (on the default images those for V100 and P4 are missing)"
    )
    raise failed("DriverError", problem, transient=False)
