"""DeepSpeed, after its "Getting Started".

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import sys

import deepspeed
import torch
from trainer.slow_input import SAVE_EVERY, STEPS, wait

deepspeed.init_distributed("gloo")
config = {"train_batch_size": 2, "optimizer": {"type": "SGD", "params": {"lr": 1e-3}}}
model = torch.nn.Linear(4, 1)
engine, *_ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
_, state = engine.load_checkpoint(sys.argv[1])
for step in range((state or {"step": 0})["step"] + 1, STEPS + 1):
    wait()
    loss = engine(torch.ones(1, 4)).pow(2).mean()
    engine.backward(loss)
    engine.step()
    print(f"step {step}/{STEPS} loss {loss.item():.4f}", flush=True)
    if step % SAVE_EVERY == 0:
        engine.save_checkpoint(sys.argv[1], client_state={"step": step})
