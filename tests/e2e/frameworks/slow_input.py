"""Input that takes a quarter of a second for each step, until the home directory has a file `finish`."""

import time
from pathlib import Path

STEPS = 1000
SAVE_EVERY = 20


def wait() -> None:
    if not (Path.home() / "finish").exists():
        time.sleep(0.25)
