"""TensorBoard, after PyTorch's tutorial "How to use TensorBoard with PyTorch".

It prints no step and no loss.

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import os
import sys
from pathlib import Path

from torch.utils.tensorboard import SummaryWriter
from trainer.slow_input import SAVE_EVERY, STEPS, wait

saved = Path(sys.argv[1], "step")
writer = SummaryWriter(os.environ["TENSORBOARD_LOGGING_DIR"])
for step in range(int(saved.read_text()) + 1 if saved.exists() else 1, STEPS + 1):
    wait()
    writer.add_scalar("loss", 1 / step, step)
    if step % SAVE_EVERY == 0:
        saved.write_text(str(step))
        print(f"saved after {step} batches", flush=True)
writer.close()
