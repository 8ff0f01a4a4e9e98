"""Weights & Biases, after its quickstart.

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import sys
from pathlib import Path

import wandb
from trainer.slow_input import SAVE_EVERY, STEPS, wait

saved = Path(sys.argv[1], "step")
run = wandb.init(project="ecosystem")
print(f"run {run.id}", flush=True)
for step in range(int(saved.read_text()) + 1 if saved.exists() else 1, STEPS + 1):
    wait()
    run.log({"loss": 1 / step}, step=step)
    print(f"step {step}/{STEPS} loss {1 / step:.4f}", flush=True)
    if step % SAVE_EVERY == 0:
        saved.write_text(str(step))
run.finish()
