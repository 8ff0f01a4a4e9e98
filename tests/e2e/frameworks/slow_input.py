"""Input that takes half a second for each step, until the home directory has a file `finish`."""

import time
from pathlib import Path

STEPS = 600
SAVE_EVERY = 20


def wait() -> None:
    """Wait half a second, unless the home directory has the file `finish`."""
    if not (Path.home() / "finish").exists():
        time.sleep(0.5)
