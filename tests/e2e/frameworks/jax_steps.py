import os

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
from trainer.steps import take_steps

jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(
    f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
    num_processes=int(os.environ["WORLD_SIZE"]),
    process_id=int(os.environ["RANK"]),
)

take_steps(lambda value: float(multihost_utils.process_allgather(jnp.array([value])).sum()))
