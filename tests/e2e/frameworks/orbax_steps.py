"""JAX with Orbax, after Orbax's page "Checkpointing PyTrees of Arrays in
Multi-Host/Multi-Controller Environments".

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import sys

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from trainer.slow_input import SAVE_EVERY, STEPS, wait

jax.distributed.initialize()
mesh = jax.make_mesh((jax.device_count(),), ("data",))
by_row, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())


@jax.jit
def update(weights, rows):
    loss, gradient = jax.value_and_grad(lambda weights: jnp.mean((rows @ weights) ** 2))(weights)
    return weights - 1e-3 * gradient, loss


weights = jax.make_array_from_process_local_data(whole, np.ones((4, 1), np.float32))
options = ocp.CheckpointManagerOptions(save_interval_steps=SAVE_EVERY, max_to_keep=2)
with ocp.CheckpointManager(f"{sys.argv[1]}/orbax", options=options) as manager:
    done = manager.latest_step() or 0
    if done:
        weights = manager.restore(done, args=ocp.args.StandardRestore({"weights": weights}))[
            "weights"
        ]
    for step in range(done + 1, STEPS + 1):
        wait()
        rows = jax.make_array_from_process_local_data(
            by_row, np.ones((jax.local_device_count(), 4), np.float32)
        )
        weights, loss = update(weights, rows)
        print(f"step {step}/{STEPS} loss {float(loss):.4f}", flush=True)
        manager.save(step, args=ocp.args.StandardSave({"weights": weights}))
