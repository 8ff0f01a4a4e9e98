"""Train a digit classifier with JAX on all chips of a Cloud TPU slice, so that it survives the loss
of any host.

    python -m trainer.task --epochs 20 --job-dir gs://BUCKET/tpu_jax

Every host of the slice runs this program; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT identify
it. The chips of all hosts form one mesh of two axes, here 16 chips with `--model-parallel 2`:

    data  ↓        [chip 0  chip 1 ]     each row computes on one eighth of a batch,
                   [chip 2  chip 3 ]     each column holds one half of the hidden layer
        model →         …

By default there is one column, and each chip has the whole model. XLA finds the communication from
the shardings of the arrays: it sums the gradients over `data`, and the parts of the hidden layer
over `model`.

Host 0 stores a checkpoint after each epoch. When a host is lost, all hosts start again, and host 0
sends the checkpoint to the others, so that no two continue with different epochs. A checkpoint has
whole arrays: any mesh can continue it. Without chips (as on the local stack) the program computes
on CPUs, one device per host.

Output in the job directory: `model.npz` (the parameters), `metrics.json`, and the last checkpoint
in `checkpoints/`.
"""

import argparse
import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np

if not any(Path("/dev").glob("accel*")) and not any(Path("/dev/vfio").glob("[0-9]*")):
    os.environ.setdefault("JAX_PLATFORMS", "cpu")  # read by JAX when it is imported

import jax
import jax.numpy as jnp
from jax.experimental import multihost_utils
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 20
HELD_OUT = 0.2
MOMENTUM = 0.9
HIDDEN = 128
WAIT_S = 30 * 60  # a host that got another machine may be minutes late
SHARDINGS = {
    "hidden": PartitionSpec(None, "model"),  # each column of the mesh has some of the hidden units
    "hidden_bias": PartitionSpec("model"),
    "out": PartitionSpec("model", None),
    "out_bias": PartitionSpec(),
}
"""Parameter to the axes of the mesh that its dimensions are split over."""

Tree = dict[str, Any]


def main(argv: list[str] | None = None) -> None:
    """Join the other hosts, train, evaluate, store."""
    options = parse_arguments(argv)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        jax.distributed.initialize(
            coordinator_address=f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
            num_processes=int(os.environ["WORLD_SIZE"]),
            process_id=int(os.environ["RANK"]),
            initialization_timeout=WAIT_S,
        )
        # JAX catches SIGTERM, a notice that leaves time to save, and goes on. Here the last epoch
        # is saved already.
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    mesh = make_mesh(options.model_parallel)
    print(
        f"host {jax.process_index()} of {jax.process_count()}: mesh {dict(mesh.shape)}", flush=True
    )
    train(options, mesh)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(
        description="Train a digit classifier with JAX on a TPU slice."
    )
    parser.add_argument(
        "--job-dir", required=True, help="where checkpoint, model and metrics go; gs:// or local"
    )
    parser.add_argument(
        "--model-parallel", type=int, default=1, help="chips that share one copy of the model"
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument(
        "--batch-size", type=int, default=64, help="images per step, over all hosts"
    )
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument(
        "--epoch-seconds", type=float, default=0.0, help="minimum duration of an epoch"
    )
    return parser.parse_args(argv)


def make_mesh(model_parallel: int) -> Mesh:
    """Return a mesh of all chips.

    Neighbours share a copy of the model, because they exchange the most.
    """
    count = jax.device_count()
    if count % model_parallel or HIDDEN % model_parallel:
        raise SystemExit(
            f"--model-parallel {model_parallel} must divide the {count} devices and the {HIDDEN}"
            " hidden units"
        )
    return Mesh(
        np.array(jax.devices()).reshape(count // model_parallel, model_parallel), ("data", "model")
    )


def train(options: argparse.Namespace, mesh: Mesh) -> None:
    """Run the remaining epochs from the last checkpoint on, and store the results."""
    job_dir = options.job_dir.rstrip("/")
    job_id = os.environ.get("CLOUD_ML_JOB_ID", "local")
    # Of this job only: another one may have the same directory.
    checkpoint = f"{job_dir}/checkpoints/{job_id}.npz"
    is_chief = jax.process_index() == 0
    train_part, held_out = load_data()
    whole, epochs_done = restore(checkpoint)
    state = {
        kind: {name: split(tree[name], mesh, SHARDINGS[name]) for name in tree}
        for kind, tree in whole.items()
    }
    step = make_step(options.learning_rate)
    for epoch in range(epochs_done, options.epochs):
        started_s = time.monotonic()
        losses = []
        for images, labels in batches(*train_part, options.batch_size, epoch, mesh):
            state, loss = step(state, images, labels)
            losses.append(loss)
        loss = float(np.mean([np.asarray(step_loss) for step_loss in losses]))
        time.sleep(max(0.0, started_s + options.epoch_seconds - time.monotonic()))
        print(f"epoch {epoch + 1}/{options.epochs} loss {loss:.4f}", flush=True)
        whole = multihost_utils.process_allgather(state, tiled=True)
        if is_chief:
            arrays = {}
            for kind, tree in whole.items():
                arrays |= {f"{kind}/{name}": array for name, array in tree.items()}
            save(checkpoint, epochs_done=epoch + 1, **arrays)
    if is_chief:
        store_results(options.epochs, job_dir, whole["parameters"], held_out)


def load_data() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Load scikit-learn's 1,797 digits.

    The split is the same on every host and after every restart.
    """
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        images / 16.0, labels, test_size=HELD_OUT, random_state=SEED, stratify=labels
    )
    train_images, held_out_images = (part.astype(np.float32) for part in parts[:2])
    train_labels, held_out_labels = (part.astype(np.int32) for part in parts[2:])
    return (train_images, train_labels), (held_out_images, held_out_labels)


def batches(
    images: np.ndarray, labels: np.ndarray, size: int, epoch: int, mesh: Mesh
) -> Iterator[tuple[jax.Array, jax.Array]]:
    """Yield each complete batch. The order differs between epochs, and is reproducible."""
    order = np.random.default_rng([SEED, epoch]).permutation(len(labels))
    size -= size % mesh.shape["data"]
    spec = PartitionSpec("data")
    for start in range(0, len(order) - size + 1, size):
        rows = order[start : start + size]
        yield split(images[rows], mesh, spec), split(labels[rows], mesh, spec)


def split(array: np.ndarray, mesh: Mesh, spec: PartitionSpec) -> jax.Array:
    """Turn an array that every host has into a global array: each device gets its part."""
    return jax.make_array_from_callback(
        array.shape, NamedSharding(mesh, spec), lambda index: array[index]
    )


def first_state() -> dict[str, Tree]:
    """Return initial parameters and momenta of the model: 64 pixels in, one hidden layer, ten
    logits out.
    """
    random = np.random.default_rng(SEED)
    parameters = {
        "hidden": (random.standard_normal((64, HIDDEN)) * 0.15).astype(np.float32),
        "hidden_bias": np.zeros(HIDDEN, np.float32),
        "out": (random.standard_normal((HIDDEN, 10)) * 0.15).astype(np.float32),
        "out_bias": np.zeros(10, np.float32),
    }
    return {"parameters": parameters, "momenta": jax.tree.map(np.zeros_like, parameters)}


def logits_of(parameters: Tree, images: Any) -> Any:
    """Run the model."""
    hidden = jax.nn.relu(images @ parameters["hidden"] + parameters["hidden_bias"])
    return hidden @ parameters["out"] + parameters["out_bias"]


def make_step(learning_rate: float) -> Any:
    """Compile one step of gradient descent: state, images and labels to the next state and the
    loss.
    """

    def loss_of(parameters: Tree, images: Any, labels: Any) -> Any:
        log_probabilities = jax.nn.log_softmax(logits_of(parameters, images))
        return -jnp.mean(jnp.take_along_axis(log_probabilities, labels[:, None], axis=1))

    @jax.jit
    def step(state: dict[str, Tree], images: Any, labels: Any) -> tuple[dict[str, Tree], Any]:
        loss, gradients = jax.value_and_grad(loss_of)(state["parameters"], images, labels)
        momenta = jax.tree.map(
            lambda momentum, slope: MOMENTUM * momentum + slope, state["momenta"], gradients
        )
        parameters = jax.tree.map(
            lambda old, slope: old - learning_rate * slope, state["parameters"], momenta
        )
        return {"parameters": parameters, "momenta": momenta}, loss

    return step


def save(path: str, **arrays: Any) -> None:
    """Write arrays. In Cloud Storage the file appears when it is closed, never a part of it."""
    with fsspec.open(path, "wb") as file:
        np.savez(file, **arrays)


def restore(checkpoint: str) -> tuple[dict[str, Tree], int]:
    """Return the state to continue from, as whole arrays, and the epochs done.

    Host 0 reads the checkpoint and sends it to the others, so that all hosts have the same one.
    """
    state = first_state()
    epochs_done = 0
    if jax.process_index() == 0:
        with (
            contextlib.suppress(FileNotFoundError),
            fsspec.open(checkpoint, "rb") as file,
            np.load(file) as arrays,
        ):
            state = {
                kind: {name: arrays[f"{kind}/{name}"] for name in tree}
                for kind, tree in state.items()
            }
            epochs_done = int(arrays["epochs_done"])
    state, shared = multihost_utils.broadcast_one_to_all((state, np.array(epochs_done)))
    epochs_done = int(shared)
    if epochs_done:
        print(f"resuming from epoch {epochs_done + 1}", flush=True)
    return state, epochs_done


def store_results(
    epochs: int, job_dir: str, parameters: Tree, held_out: tuple[np.ndarray, np.ndarray]
) -> None:
    """Evaluate the model on the held-out images; write the model and its metrics."""
    images, labels = held_out
    accuracy = float((np.asarray(logits_of(parameters, images)).argmax(axis=1) == labels).mean())
    print(f"held-out accuracy {accuracy:.4f}", flush=True)
    save(f"{job_dir}/model.npz", **parameters)
    metrics = {
        "accuracy": accuracy,
        "held_out_images": len(labels),
        "epochs": epochs,
        "hosts": jax.process_count(),
        "devices": jax.device_count(),
    }
    with fsspec.open(f"{job_dir}/metrics.json", "w") as file:
        json.dump(metrics, file, indent=2)


if __name__ == "__main__":
    main()
