"""The program for Ray Train: `ray_train.py FILE ADDRESS [FEWEST]`, with FILE and FEWEST as of
`steps.py`, and the ADDRESS of the Ray cluster.
"""

import os
import sys

import ray.train
import steps
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def train(config):
    context = ray.train.get_context()
    os.environ |= {
        "RANK": str(context.get_world_rank()),
        "WORLD_SIZE": str(context.get_world_size()),
    }
    steps.run(*config["arguments"])


file, address, *fewest = sys.argv[1:]
ray.init(address=address)
DataParallelTrainer(
    train,
    train_loop_config={"arguments": [file, *fewest]},
    scaling_config=ScalingConfig(num_workers=(int(fewest[0]), 2) if fewest else 2),
    run_config=RunConfig(storage_path=f"{file}.ray", failure_config=FailureConfig(max_failures=-1)),
).fit()
