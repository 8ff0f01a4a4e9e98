"""PyTorch, after its tutorial "Fault-tolerant Distributed Training with torchrun".

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from trainer.slow_input import SAVE_EVERY, STEPS, wait

snapshot = Path(sys.argv[1], "snapshot.pt")
dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
done = 0
if snapshot.exists():
    stored = torch.load(snapshot)
    model.module.load_state_dict(stored["model"])
    done = stored["step"]
for step in range(done + 1, STEPS + 1):
    wait()
    loss = model(torch.ones(8, 4)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}/{STEPS} loss {loss.item():.4f}", flush=True)
    if step % SAVE_EVERY == 0 and dist.get_rank() == 0:
        torch.save({"model": model.module.state_dict(), "step": step}, snapshot)
dist.destroy_process_group()
