import torch
import torch.distributed as dist
from trainer.steps import take_steps


def total(value):
    tensor = torch.tensor([value])
    dist.all_reduce(tensor)
    return tensor.item()


dist.init_process_group("gloo")
take_steps(total)
