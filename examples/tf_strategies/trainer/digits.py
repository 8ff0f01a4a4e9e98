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


def flags(description: str) -> argparse.ArgumentParser:
    """Return a parser with the flags that all trainers have."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--job-dir", required=True, help="where backup, model and metrics go; gs:// or local"
    )
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="images per replica and step")
    parser.add_argument(
        "--epoch-seconds", type=float, default=0.0, help="minimum duration of an epoch"
    )
    return parser


def own_folder(job_dir: str, name: str) -> str:
    """Return this job's folder of this name: another job may have the same job directory."""
    return f"{job_dir.rstrip('/')}/{name}/{os.environ.get('CLOUD_ML_JOB_ID', 'local')}"


def load() -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Return (images, labels) for training and for evaluation.

    The split is the same after every restart.
    """
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
    model.compile(
        optimizer=tf.keras.optimizers.Adam(0.004), loss=loss, metrics=["accuracy"], **options
    )
    return model


class Checkpoints:
    """Checkpoints of model and optimizer after each epoch, `ckpt-EPOCH`; the last two are kept."""

    def __init__(self, model: Any, job_dir: str) -> None:
        checkpoint = tf.train.Checkpoint(model=model, optimizer=model.optimizer)
        self._manager = tf.train.CheckpointManager(
            checkpoint, own_folder(job_dir, "checkpoints"), max_to_keep=2
        )

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
    """Evaluate the model on the held-out images, and store the model and metrics.json."""
    images, labels = load()[1]
    accuracy = float(np.mean(np.argmax(model(images, training=False), axis=-1) == labels))
    print(f"held-out accuracy {accuracy:.4f}", flush=True)
    tf.keras.utils.disable_interactive_logging()  # export would print its endpoints
    folder = job_dir.rstrip("/")
    model.export(f"{folder}/model")
    with tf.io.gfile.GFile(f"{folder}/metrics.json", "w") as file:
        json.dump({"accuracy": accuracy, **facts}, file, indent=2)
