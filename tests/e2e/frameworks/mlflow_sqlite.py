"""MLflow, after its quickstart.

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import sys
from pathlib import Path

import mlflow
from trainer.slow_input import SAVE_EVERY, STEPS, wait

saved = Path(sys.argv[1], "step")
mlflow.set_experiment("ecosystem")
with mlflow.start_run() as run:
    print(f"run {run.info.run_id}", flush=True)
    for step in range(int(saved.read_text()) + 1 if saved.exists() else 1, STEPS + 1):
        wait()
        mlflow.log_metric("loss", 1 / step, step=step)
        print(f"step {step}/{STEPS} loss {1 / step:.4f}", flush=True)
        if step % SAVE_EVERY == 0:
            saved.write_text(str(step))
