"""The program for Ray Train: `ray_train.py FILE ADDRESS`."""

import sys

import ray.train
import steps
from ray.train import FailureConfig, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def train(config):
    steps.run(config["file"], rank=str(ray.train.get_context().get_world_rank()))


ray.init(address=sys.argv[2])
DataParallelTrainer(
    train,
    train_loop_config={"file": sys.argv[1]},
    scaling_config=ScalingConfig(num_workers=2),
    run_config=RunConfig(storage_path=f"{sys.argv[1]}.ray", failure_config=FailureConfig(max_failures=-1)),
).fit()
