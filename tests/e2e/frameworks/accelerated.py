import torch
from accelerate import Accelerator
from trainer.steps import take_steps

accelerator = Accelerator(cpu=True)
assert accelerator.num_processes > 1
take_steps(lambda value: accelerator.reduce(torch.tensor([value]), "sum").item())
