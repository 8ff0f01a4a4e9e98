"""Flags, data, model and results in the job directory, shared by the trainers of this package.

Paths may be local or gs://, because all files are accessed through `tf.io.gfile`.
"""

import argparse
import json
import os
import time
from typing import Any

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 20
CLASSES = 10
PIXELS = 64
HELD_OUT = 0.2
REWRITE_S = 10.0
REREAD_S = 0.2


def flags(description: str) -> argparse.ArgumentParser:
    """Return a parser with the flags that all trainers have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--job-dir", required=True, help="where backup, model and metrics go; gs:// or local")
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="images per replica and step")
    parser.add_argument("--epoch-seconds", type=float, default=0.0, help="minimum duration of an epoch")
    return parser


def job_id() -> str:
    """Return the job's id, or `local` for a manual run."""
    return os.environ.get("CLOUD_ML_JOB_ID", "local")


def checkpoint_dir(job_dir: str) -> str:
    """Return the directory of this job's checkpoints."""
    return join(job_dir, "checkpoints", job_id())


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return (images, labels) for training and for evaluation. The split is the same after every restart."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        (images / 16.0).astype("float32"),
        labels.astype("int64"),
        test_size=HELD_OUT,
        random_state=SEED,
        stratify=labels,
    )
    return (parts[0], parts[2]), (parts[1], parts[3])


def endless(images: np.ndarray, labels: np.ndarray, batch_size: int) -> tf.data.Dataset:
    """Return an endless dataset of shuffled batches of equal size."""
    dataset = tf.data.Dataset.from_tensor_slices((images, labels))
    return dataset.shuffle(len(labels), seed=SEED).repeat().batch(batch_size, drop_remainder=True)


def compiled_model(**options: Any) -> Any:
    """Return the compiled model. Call this in the strategy's scope."""
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((PIXELS,)),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dense(CLASSES),
        ]
    )
    loss = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=tf.keras.optimizers.Adam(0.004), loss=loss, metrics=["accuracy"], **options)
    return model


class Checkpoints:
    """Checkpoints of model and optimizer after each epoch, `ckpt-EPOCH`; the last two are kept.

    Their directory contains the job id, so that another job with the same job directory does not resume from them.
    """

    def __init__(self, model: Any, job_dir: str) -> None:
        self.directory = checkpoint_dir(job_dir)
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        self._manager = tf.train.CheckpointManager(checkpoint, self.directory, max_to_keep=2)

    def restore(self) -> int:
        """Load the last checkpoint, if any, and return the number of epochs done."""
        latest = self._manager.restore_or_initialize()
        epochs_done = int(latest.rpartition("-")[2]) if latest else 0
        if epochs_done:
            print(f"resuming from epoch {epochs_done + 1}", flush=True)
        return epochs_done

    def save(self, epochs_done: int) -> None:
        """Store the state after `epochs_done` epochs."""
        self._manager.save(checkpoint_number=epochs_done)


class Epochs(tf.keras.callbacks.Callback):  # type: ignore[misc]  # TensorFlow has no types
    """After each epoch: keep its minimum duration, store a checkpoint, print a line."""

    def __init__(self, options: argparse.Namespace, checkpoints: Checkpoints) -> None:
        super().__init__()
        self.options = options
        self.checkpoints = checkpoints
        self._started_s = 0.0

    def on_epoch_begin(self, _epoch: int, _logs: dict[str, float] | None = None) -> None:
        """Record the time."""
        self._started_s = time.monotonic()

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Store the checkpoint. A later restart begins with the next epoch."""
        time.sleep(max(0.0, self._started_s + self.options.epoch_seconds - time.monotonic()))
        self.checkpoints.save(epoch + 1)
        metrics = " ".join(f"{name} {value:.4f}" for name, value in (logs or {}).items())
        print(f"epoch {epoch + 1}/{self.options.epochs} {metrics}", flush=True)


def store_results(model: Any, job_dir: str, **facts: Any) -> None:
    """Evaluate the model on the held-out images and store it, then metrics.json, which marks completion.

    Delete the checkpoints last: they are needed until the results are complete.
    """
    images, labels = load()[1]
    accuracy = float(np.mean(np.argmax(model(images, training=False), axis=-1) == labels))
    print(f"held-out accuracy {accuracy:.4f}", flush=True)
    tf.keras.utils.disable_interactive_logging()  # export would print its endpoints
    model.export(join(job_dir, "model"))
    write_json(join(job_dir, "metrics.json"), {"job_id": job_id(), "accuracy": accuracy, **facts})
    tf.io.gfile.rmtree(checkpoint_dir(job_dir))


def is_finished(job_dir: str) -> bool:
    """Return whether the directory has this job's results, because the job was restarted after its last step."""
    stored = read_json(join(job_dir, "metrics.json")) or {}
    finished: bool = stored.get("job_id") == job_id() != "local"
    if finished:
        print(f"job {job_id()} has its results already; nothing left to do", flush=True)
    return finished


def join(directory: str, *parts: str) -> str:
    """Join path parts with slashes, local or gs://."""
    return "/".join([directory.rstrip("/"), *parts])


def write_json(path: str, value: Any) -> None:
    """Write a JSON file, local or gs://."""
    tf.io.gfile.makedirs(path.rpartition("/")[0])
    with tf.io.gfile.GFile(path, "w") as file:
        file.write(json.dumps(value, indent=2) + "\n")


def read_json(path: str) -> Any:
    """Read a JSON file, local or gs://. Return None if it does not exist."""
    deadline = time.monotonic() + REWRITE_S
    while True:
        try:
            with tf.io.gfile.GFile(path, "r") as file:
                return json.loads(file.read())
        except tf.errors.NotFoundError:
            return None
        except (ValueError, tf.errors.InternalError):
            # Another replica is rewriting the object. TensorFlow reads its size first and its content afterwards: the
            # content is then cut off, or the read fails with "File contents are inconsistent".
            if time.monotonic() > deadline:
                raise
            time.sleep(REREAD_S)
