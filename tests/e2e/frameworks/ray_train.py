"""Ray Train, after its guide "Get Started with Distributed Training using PyTorch".

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import sys
import tempfile
from pathlib import Path

import ray.train
import torch
from ray.train.torch import TorchTrainer, prepare_model
from trainer.slow_input import SAVE_EVERY, STEPS, wait


def train():
    model = prepare_model(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    done = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            done = torch.load(Path(folder, "state.pt"))["step"]
    for step in range(done + 1, STEPS + 1):
        wait()
        loss = model(torch.ones(8, 4)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"step {step}/{STEPS} loss {loss.item():.4f}", flush=True)
        if step % SAVE_EVERY == 0:
            with tempfile.TemporaryDirectory() as folder:
                torch.save({"step": step}, Path(folder, "state.pt"))
                ray.train.report(
                    {"loss": loss.item()}, checkpoint=ray.train.Checkpoint.from_directory(folder)
                )


scaling = ray.train.ScalingConfig(num_workers=2)
TorchTrainer(
    train, scaling_config=scaling, run_config=ray.train.RunConfig("run", storage_path=sys.argv[1])
).fit()
