"""Train a digit classifier with JAX on all chips of a Cloud TPU slice, so that it survives the loss of any host.

    python -m trainer.task --epochs 20 --job-dir gs://BUCKET/tpu_jax

Every host of the slice runs this program; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT identify it. The chips of all
hosts form one mesh: each computes on its part of a batch, and JAX sums the gradients. Host 0 stores a checkpoint after
each epoch. When a host is lost, all hosts are restarted, and host 0 sends the checkpoint to the others. Only one host
reads it, so no two can continue with different epochs.

Without chips (as on the local stack) the program computes on CPUs, one device per host.

Output in the job directory: `model.npz` (the parameters), `metrics.json`.
"""

import argparse
import io
import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy as np

from trainer.job_dir import delete_file, read_file, write_file

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
RENDEZVOUS_S = 30 * 60

Tree = dict[str, Any]


def main(argv: list[str] | None = None) -> None:
    """Join the other hosts, train, evaluate, store."""
    options = parse_arguments(argv)
    job_id = os.environ.get("CLOUD_ML_JOB_ID", "local")
    if is_finished(options.job_dir, job_id):
        print(f"job {job_id} has its results already; nothing left to do", flush=True)
        return
    join()
    print(f"host {jax.process_index()} of {jax.process_count()}: {jax.device_count()} devices", flush=True)
    train(options, job_id)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(description="Train a digit classifier with JAX on a TPU slice.")
    parser.add_argument("--job-dir", required=True, help="where checkpoint, model and metrics go; gs:// or local")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=64, help="images per step, over all hosts")
    parser.add_argument("--learning-rate", type=float, default=0.1)
    parser.add_argument("--epoch-seconds", type=float, default=0.0, help="minimum duration of an epoch")
    return parser.parse_args(argv)


def join() -> None:
    """Form one cluster of all hosts. Do nothing if there is only one."""
    hosts = int(os.environ.get("WORLD_SIZE", "1"))
    if hosts == 1:
        return
    jax.distributed.initialize(
        coordinator_address=f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
        num_processes=hosts,
        process_id=int(os.environ["RANK"]),
        initialization_timeout=RENDEZVOUS_S,
    )
    # JAX treats SIGTERM as a preemption notice that leaves time to save. Here the last epoch is saved already.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)


def train(options: argparse.Namespace, job_id: str) -> None:
    """Run the remaining epochs from the last checkpoint on, and store the results."""
    is_chief = jax.process_index() == 0
    checkpoint_name = f"checkpoint-{job_id}.npz"
    mesh = Mesh(np.array(jax.devices()), ("data",))
    train_part, held_out = load_data()
    state, epochs_done, resumed_from = restore(options.job_dir, checkpoint_name)
    state = to_devices(state, mesh, PartitionSpec())
    step = make_step(options.learning_rate)
    for epoch in range(epochs_done, options.epochs):
        started_s = time.monotonic()
        losses = []
        for images, labels in batches(*train_part, options.batch_size, epoch):
            batch = to_devices({"images": images, "labels": labels}, mesh, PartitionSpec("data"))
            state, loss = step(state, batch)
            losses.append(loss)
        loss = float(np.mean([np.asarray(step_loss) for step_loss in losses]))
        time.sleep(max(0.0, started_s + options.epoch_seconds - time.monotonic()))
        print(f"epoch {epoch + 1}/{options.epochs} loss {loss:.4f}", flush=True)
        if is_chief:
            save(options.job_dir, checkpoint_name, state, epoch + 1, resumed_from)
    if is_chief:
        store_results(options, job_id, state, held_out, resumed_from)
    multihost_utils.sync_global_devices("the results are stored")  # no host exits before
    if is_chief:
        delete_file(options.job_dir, checkpoint_name)


def load_data() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Load scikit-learn's 1,797 digits. The split is the same on every host and after every restart."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images / 16.0, labels, test_size=HELD_OUT, random_state=SEED, stratify=labels)
    train_images, held_out_images = (part.astype(np.float32) for part in parts[:2])
    train_labels, held_out_labels = (part.astype(np.int32) for part in parts[2:])
    return (train_images, train_labels), (held_out_images, held_out_labels)


def batches(images: np.ndarray, labels: np.ndarray, size: int, epoch: int) -> Any:
    """Yield this host's part of each complete batch. The order differs between epochs, and is reproducible."""
    order = np.random.default_rng([SEED, epoch]).permutation(len(labels))
    size -= size % jax.device_count()
    share = size // jax.process_count()
    mine = jax.process_index() * share
    for start in range(0, len(order) - size + 1, size):
        rows = order[start + mine : start + mine + share]
        yield images[rows], labels[rows]


def first_state() -> Tree:
    """Return initial parameters and momenta of the model: 64 pixels in, one hidden layer, ten logits out."""
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
    """Compile one step of gradient descent. The batch is split over all devices; the state is replicated on each."""

    def loss_of(parameters: Tree, batch: Tree) -> Any:
        log_probabilities = jax.nn.log_softmax(logits_of(parameters, batch["images"]))
        return -jnp.mean(jnp.take_along_axis(log_probabilities, batch["labels"][:, None], axis=1))

    @jax.jit
    def step(state: Tree, batch: Tree) -> tuple[Tree, Any]:
        loss, gradients = jax.value_and_grad(loss_of)(state["parameters"], batch)
        momenta = jax.tree.map(lambda momentum, slope: MOMENTUM * momentum + slope, state["momenta"], gradients)
        parameters = jax.tree.map(lambda old, slope: old - learning_rate * slope, state["parameters"], momenta)
        return {"parameters": parameters, "momenta": momenta}, loss

    return step


def to_devices(tree: Tree, mesh: Mesh, spec: PartitionSpec) -> Tree:
    """Turn this host's arrays into global arrays: `spec` splits them over all hosts ("data") or replicates them."""
    sharding = NamedSharding(mesh, spec)
    arrays: Tree = jax.tree.map(lambda leaf: jax.make_array_from_process_local_data(sharding, np.asarray(leaf)), tree)
    return arrays


def save(job_dir: str, name: str, state: Tree, epochs_done: int, resumed_from: list[int]) -> None:
    """Store a checkpoint."""
    leaves = {str(number): np.asarray(leaf) for number, leaf in enumerate(jax.tree.leaves(state))}
    write_file(job_dir, name, to_bytes(epochs_done=epochs_done, resumed_from=np.array(resumed_from, int), **leaves))


def restore(job_dir: str, name: str) -> tuple[Tree, int, list[int]]:
    """Return the state to continue from, the epochs done, and all epochs resumed from.

    Host 0 reads the checkpoint and sends it to the others, so that all hosts have the same one.
    """
    state, epochs_done, resumed_from = first_state(), 0, list[int]()
    stored = read_file(job_dir, name) if jax.process_index() == 0 else None
    if stored is not None:
        with np.load(io.BytesIO(stored)) as arrays:
            leaves = [arrays[str(number)] for number in range(len(jax.tree.leaves(state)))]
            state = jax.tree.unflatten(jax.tree.structure(state), leaves)
            epochs_done = int(arrays["epochs_done"])
            resumed_from = [*arrays["resumed_from"].tolist(), epochs_done + 1]
    if jax.process_count() > 1:
        state, shared = multihost_utils.broadcast_one_to_all((state, np.array(epochs_done)))
        epochs_done = int(shared)
    if epochs_done:
        print(f"resuming from epoch {epochs_done + 1}", flush=True)
    return state, epochs_done, resumed_from


def store_results(
    options: argparse.Namespace,
    job_id: str,
    state: Tree,
    held_out: tuple[np.ndarray, np.ndarray],
    resumed_from: list[int],
) -> None:
    """Evaluate the model on the held-out images; write the model, then the metrics, which mark completion."""
    parameters = jax.tree.map(np.asarray, state["parameters"])
    images, labels = held_out
    hidden = np.maximum(images @ parameters["hidden"] + parameters["hidden_bias"], 0)
    guesses = (hidden @ parameters["out"] + parameters["out_bias"]).argmax(axis=1)
    accuracy = float((guesses == labels).mean())
    print(f"held-out accuracy {accuracy:.4f}", flush=True)
    write_file(options.job_dir, "model.npz", to_bytes(**parameters))
    metrics = {
        "job_id": job_id,
        "accuracy": accuracy,
        "held_out_images": len(labels),
        "epochs": options.epochs,
        "hosts": jax.process_count(),
        "devices": jax.device_count(),
        "resumed_from_epoch": resumed_from,
    }
    write_file(options.job_dir, "metrics.json", json.dumps(metrics, indent=2).encode())


def is_finished(job_dir: str, job_id: str) -> bool:
    """Return whether the directory has this job's results. Always False for a manual run, which has no job id."""
    stored = read_file(job_dir, "metrics.json")
    return stored is not None and job_id != "local" and json.loads(stored).get("job_id") == job_id


def to_bytes(**arrays: Any) -> bytes:
    """Serialize arrays."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


if __name__ == "__main__":
    main()
