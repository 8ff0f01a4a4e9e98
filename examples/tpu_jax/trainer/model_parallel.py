"""Train the digit classifier with JAX over two axes: the batch is split over one, the model over the other.

    python -m trainer.model_parallel --model-parallel 2 --epochs 20 --job-dir gs://BUCKET/tpu_jax_model_parallel

    mesh of 16 chips        model →
    data  ↓        [chip 0  chip 1 ]     each row computes on one eighth of a batch,
                   [chip 2  chip 3 ]     each column holds one half of the hidden layer
                        …

XLA finds the communication from the shardings of the arrays: the halves of the hidden layer are summed over `model`,
and the gradients over `data`. The program is otherwise that of `trainer.task`: the same model, batches, checkpoints and
results, whatever the mesh is. A checkpoint has whole arrays, so it can be continued on another mesh.
"""

import argparse
import os
import time
from typing import Any

import numpy as np

from trainer import task  # selects the platform before JAX is imported

# isort: split
import jax
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from trainer.job_dir import delete_file

SHARDINGS = {
    "hidden": PartitionSpec(None, "model"),  # each column of the mesh has some of the hidden units
    "hidden_bias": PartitionSpec("model"),
    "out": PartitionSpec("model", None),
    "out_bias": PartitionSpec(),
}
"""Parameter to the axes of the mesh that its dimensions are split over."""


def main(argv: list[str] | None = None) -> None:
    """Join the other hosts, train, evaluate, store."""
    options = parse_arguments(argv)
    job_id = os.environ.get("CLOUD_ML_JOB_ID", "local")
    if task.is_finished(options.job_dir, job_id):
        print(f"job {job_id} has its results already; nothing left to do", flush=True)
        return
    task.join()
    mesh = make_mesh(options.model_parallel)
    print(f"host {jax.process_index()} of {jax.process_count()}: mesh {dict(mesh.shape)}", flush=True)
    train(options, job_id, mesh)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(description="Train a digit classifier with JAX, split over data and model.")
    parser.add_argument("--job-dir", required=True, help="where checkpoint, model and metrics go; gs:// or local")
    parser.add_argument("--model-parallel", type=int, default=2, help="chips that share one copy of the model")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step, over all hosts")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--epoch-seconds", type=float, default=0.0, help="minimum duration of an epoch")
    return parser.parse_args(argv)


def make_mesh(model_parallel: int) -> Mesh:
    """Return a mesh of all chips. Neighbours share a copy of the model, because they exchange the most."""
    count = jax.device_count()
    if count % model_parallel or task.HIDDEN % model_parallel:
        raise SystemExit(
            f"--model-parallel {model_parallel} must divide the {count} devices and the {task.HIDDEN} hidden units"
        )
    return Mesh(np.array(jax.devices()).reshape(count // model_parallel, model_parallel), ("data", "model"))


def train(options: argparse.Namespace, job_id: str, mesh: Mesh) -> None:
    """Run the remaining epochs from the last checkpoint on, and store the results."""
    is_chief = jax.process_index() == 0
    checkpoint_name = f"checkpoint-{job_id}.npz"
    train_part, held_out = task.load_data()
    whole, epochs_done, resumed_from = task.restore(options.job_dir, checkpoint_name)
    state = {name: split_parameters(tree, mesh) for name, tree in whole.items()}
    step = task.make_step(options.learning_rate)
    for epoch in range(epochs_done, options.epochs):
        started_s = time.monotonic()
        losses = []
        for images, labels in batches(*train_part, options.batch_size, epoch, mesh):
            rows = PartitionSpec("data")
            batch = {"images": split(images, mesh, rows), "labels": split(labels, mesh, rows)}
            state, loss = step(state, batch)
            losses.append(loss)
        loss = float(np.mean([np.asarray(step_loss) for step_loss in losses]))
        time.sleep(max(0.0, started_s + options.epoch_seconds - time.monotonic()))
        print(f"epoch {epoch + 1}/{options.epochs} loss {loss:.4f}", flush=True)
        whole = gather(state)
        if is_chief:
            task.save(options.job_dir, checkpoint_name, whole, epoch + 1, resumed_from)
    whole = gather(state)
    if is_chief:
        task.store_results(options, job_id, whole, held_out, resumed_from)
    multihost_utils.sync_global_devices("the results are stored")  # no host exits before
    if is_chief:
        delete_file(options.job_dir, checkpoint_name)


def batches(images: np.ndarray, labels: np.ndarray, size: int, epoch: int, mesh: Mesh) -> Any:
    """Yield each complete batch, in the order of `trainer.task`. Every host has all of it and keeps its part."""
    order = np.random.default_rng([task.SEED, epoch]).permutation(len(labels))
    size -= size % mesh.shape["data"]
    for start in range(0, len(order) - size + 1, size):
        rows = order[start : start + size]
        yield images[rows], labels[rows]


def split_parameters(parameters: task.Tree, mesh: Mesh) -> task.Tree:
    """Split whole parameters, or their momenta, over the mesh."""
    return {name: split(np.asarray(array), mesh, SHARDINGS[name]) for name, array in parameters.items()}


def split(array: np.ndarray, mesh: Mesh, spec: PartitionSpec) -> Any:
    """Turn an array that every host has into a global array: each device gets its part."""
    sharding = NamedSharding(mesh, spec)
    return jax.make_array_from_callback(array.shape, sharding, lambda index: array[index])


def gather(state: task.Tree) -> task.Tree:
    """Return the whole arrays of a split state, on every host."""
    arrays: task.Tree = multihost_utils.process_allgather(state, tiled=True)
    return arrays


if __name__ == "__main__":
    main()
