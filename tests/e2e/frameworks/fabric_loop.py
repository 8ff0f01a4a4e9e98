"""Lightning Fabric, after its pages "Convert to Lightning Fabric" and "Saving and Loading a
Checkpoint".

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import sys
from pathlib import Path

import torch
from lightning.fabric import Fabric
from trainer.slow_input import SAVE_EVERY, STEPS, wait

saved = Path(sys.argv[1], "state.ckpt")
fabric = Fabric(accelerator="cpu", devices=1, num_nodes=2)
fabric.launch()
model = torch.nn.Linear(4, 1)
model, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=1e-3))
state = {"model": model, "optimizer": optimizer, "step": 0}
if saved.exists():
    fabric.load(saved, state)
for step in range(state["step"] + 1, STEPS + 1):
    wait()
    loss = model(torch.ones(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    fabric.backward(loss)
    optimizer.step()
    fabric.print(f"step {step}/{STEPS} loss {loss.item():.4f}", flush=True)
    state["step"] = step
    if step % SAVE_EVERY == 0:
        fabric.save(saved, state)
