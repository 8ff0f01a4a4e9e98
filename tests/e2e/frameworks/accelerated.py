"""Accelerate, after its guide "Checkpointing".

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import sys
from pathlib import Path

import torch
from accelerate import Accelerator
from trainer.slow_input import SAVE_EVERY, STEPS, wait

folder = Path(sys.argv[1])
latest = folder / "latest"
accelerator = Accelerator()
rows = torch.utils.data.DataLoader(torch.ones(2 * STEPS, 4), batch_size=1)
model = torch.nn.Linear(4, 1)
model, optimizer, rows = accelerator.prepare(
    model, torch.optim.SGD(model.parameters(), lr=1e-3), rows
)
done = 0
if latest.exists():
    done = int(latest.read_text())
    accelerator.load_state(folder / f"step_{done}")
    rows = accelerator.skip_first_batches(rows, done)
for step, batch in enumerate(rows, done + 1):
    wait()
    loss = model(batch).pow(2).mean()
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    accelerator.print(f"step {step}/{STEPS} loss {loss.item():.4f}", flush=True)
    if step % SAVE_EVERY == 0:
        accelerator.save_state(folder / f"step_{step}")
        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            latest.write_text(str(step))
accelerator.end_training()
