"""A world in which a program fails again and again, soon after its start."""

from __future__ import annotations

from datetime import datetime

from tests.support.jobs import CHIEF, a_spec
from tests.support.world import World

MISSING_FILE = {
    "type": "FileNotFoundError",
    "message": "[Errno 2] No such file or directory: 'data/train.csv'",
    "frame": "train.py:18 in <module>",
    "own_frame": "train.py:18 in <module>",
}
LAST = "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.csv' (train.py:18)"


def failing_world(now: datetime, *, failures: int, workers: int = 0) -> World:
    """Return a running job whose chief has failed so often since `now`.

    Without workers it is judged alone; with workers, the job is a gang.
    """
    world = World(now=now, job_id="failing_1")
    one_vm = {"scaleTier": "BASIC", "masterType": None, "workerType": None, "workerCount": None}
    world.submit(a_spec(workerCount=workers) if workers else a_spec(**one_vm))
    world.deliver()
    world.report_all_ready()
    for number in range(failures):
        # A text that the rules do not take for the same bug as the one before.
        error = {**MISSING_FILE, "type": "ConnectionError"} if number % 2 else MISSING_FILE
        world.exit_program(CHIEF, error=error, ran_s=5.0)
        world.deliver()
        if not workers:
            world.send("vm-ready", CHIEF)
    return world
