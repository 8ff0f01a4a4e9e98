"""JAX, after its page "Introduction to multi-controller JAX".

`slow_input.py` beside it makes each step half a second long, so that a test can end the program
midway.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from trainer.slow_input import SAVE_EVERY, STEPS, wait

jax.distributed.initialize()
saved = Path(sys.argv[1], "weights.npz")
mesh = jax.make_mesh((jax.device_count(),), ("data",))
by_row, whole = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())


@jax.jit
def update(weights, rows):
    loss, gradient = jax.value_and_grad(lambda weights: jnp.mean((rows @ weights) ** 2))(weights)
    return weights - 1e-3 * gradient, loss


stored = np.load(saved) if saved.exists() else {"weights": np.ones((4, 1), np.float32), "step": 0}
weights = jax.make_array_from_process_local_data(whole, stored["weights"])
for step in range(int(stored["step"]) + 1, STEPS + 1):
    wait()
    rows = jax.make_array_from_process_local_data(
        by_row, np.ones((jax.local_device_count(), 4), np.float32)
    )
    weights, loss = update(weights, rows)
    print(f"step {step}/{STEPS} loss {float(loss):.4f}", flush=True)
    if step % SAVE_EVERY == 0 and jax.process_index() == 0:
        np.savez(saved, weights=np.asarray(weights.addressable_data(0)), step=step)
