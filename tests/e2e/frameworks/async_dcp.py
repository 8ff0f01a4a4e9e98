"""PyTorch's recipe "Asynchronous Saving with Distributed Checkpoint", with persistent workers of
its data loader.

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import sys
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel
from trainer.slow_input import SAVE_EVERY, STEPS, wait


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return STEPS

    def __getitem__(self, index):
        wait()
        return torch.ones(4)


dist.init_process_group("gloo")
savers = dist.new_group()  # on CPUs, both sides of an asynchronous save use gloo
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
weights, state = get_state_dict(model, optimizer)
stored = {"model": weights, "optimizer": state, "step": 0}
folders = sorted(path.parent for path in Path(sys.argv[1]).glob("step_*/.metadata"))
if folders:
    dcp.load(stored, checkpoint_id=str(folders[-1]))
    set_state_dict(
        model, optimizer, model_state_dict=stored["model"], optim_state_dict=stored["optimizer"]
    )
rows = torch.utils.data.DataLoader(
    Rows(), num_workers=1, prefetch_factor=1, persistent_workers=True
)
saving = None
for step, batch in zip(range(stored["step"] + 1, STEPS + 1), rows, strict=False):
    loss = model(batch).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"step {step}/{STEPS} loss {loss.item():.4f}", flush=True)
    if step % SAVE_EVERY == 0:
        if saving is not None:
            saving.result()
        weights, state = get_state_dict(model, optimizer)
        state = {"model": weights, "optimizer": state, "step": step}
        saving = dcp.async_save(
            state, checkpoint_id=f"{sys.argv[1]}/step_{step:04}", process_group=savers
        )
if saving is not None:
    saving.result()
dist.destroy_process_group()
