"""PyTorch on several VMs: the ranks find each other by the variables of the platform, and count
each other.
"""

import os

import torch
from torch import distributed

distributed.init_process_group("gloo")
counted = torch.ones(1)
distributed.all_reduce(counted)
assert counted.item() == distributed.get_world_size() == int(os.environ["WORLD_SIZE"]) == 2
distributed.destroy_process_group()
