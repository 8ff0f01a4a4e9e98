"""Write a scalar to TensorBoard every tenth of a second, until a file `finish` exists in the home
directory.
"""

import argparse
import time
from pathlib import Path

from tensorflow import summary

parser = argparse.ArgumentParser()
parser.add_argument("--job-dir", required=True)
options, _ = parser.parse_known_args()
writer = summary.create_file_writer(f"{options.job_dir.rstrip('/')}/train")
step = 0
while not (Path.home() / "finish").exists():
    with writer.as_default():
        summary.scalar("loss", 1 / (1 + step), step=step)
    writer.flush()
    print("step", step, flush=True)
    step += 1
    time.sleep(0.1)
