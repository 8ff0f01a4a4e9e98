"""Times on a machine that other programs use, too."""

from __future__ import annotations

import time
from typing import Final

CALIBRATION_S: Final = 0.2
"""CPU time of the busy loop that shows how busy the machine is."""


def is_quick(took_s: float, limit_s: float) -> bool:
    """Whether what took `took_s` seconds just now would have taken less than `limit_s` on an idle
    machine, as far as the load of this moment shows.
    """
    return took_s < limit_s or took_s < limit_s * slowdown()


def slowdown() -> float:
    """Return the quotient of the clock's time and the CPU time of a busy thread: 1 while no other
    program runs.
    """
    began, began_cpu = time.perf_counter(), time.thread_time()
    while time.thread_time() - began_cpu < CALIBRATION_S:
        pass
    return (time.perf_counter() - began) / CALIBRATION_S
