"""`accelerate launch`, which ends with CalledProcessError whenever the program fails."""

import os
import sys

command = ["-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1", "-m", "trainer.accelerated"]
os.execv(sys.executable, [sys.executable, *command])  # noqa: S606
