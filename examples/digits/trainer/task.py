"""Train a digit classifier with MultiWorkerMirroredStrategy, so that it survives the loss of any
replica.

    python -m trainer.task --epochs 12 --job-dir gs://BUCKET/digits

Every replica of the job runs this program; TF_CONFIG contains the replica's task. The program can
be restarted because:

- The replicas share one backup directory, `JOB_DIR/backup/JOB_ID`. All restore from it, so all
  continue with the same epoch. (With one directory per replica they could disagree on the epoch,
  and their collectives would not match.)
- A replica does not handle a lost peer. Its next collective fails, the program exits with status 1,
  and all replicas start again. At start-up TensorFlow waits for the peers for up to an hour, its
  default. There is no timeout to tune: a short one would only turn waiting for a new VM into
  further failures.

Output in the job directory: `model/` (a SavedModel), `metrics.json`, and the backup of the last
epoch.
"""

import argparse
import json
import os
import signal
import tempfile
import time
from dataclasses import dataclass
from typing import Any

# Keras 3 cannot run `fit` under MultiWorkerMirroredStrategy; Keras 2 (the package tf_keras) can.
# Read at import.
os.environ["TF_USE_LEGACY_KERAS"] = "1"
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "1")

import numpy as np
import tensorflow as tf
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

SEED = 20
CLASSES = 10
SIDE = 8
HELD_OUT = 0.2


@dataclass(frozen=True)
class Digits:
    """Images of shape (n, 8, 8, 1) with values in 0..1, and their labels: one part for training,
    one for evaluation.
    """

    train_images: np.ndarray
    train_labels: np.ndarray
    held_out_images: np.ndarray
    held_out_labels: np.ndarray


def main(argv: list[str] | None = None) -> None:
    """Train, evaluate, store."""
    options = parse_arguments(argv)
    job_dir = options.job_dir.rstrip("/")
    job_id = os.environ.get("CLOUD_ML_JOB_ID", "local")
    # Warnings about restored checkpoints are about Keras' own bookkeeping.
    tf.get_logger().setLevel("ERROR")
    # tf.data's tuner threads sleep for up to a minute and can miss the call to end; `fit` then
    # returns that much later. Debug mode has no such threads and no parallel loading, which is not
    # needed here. Remove it for more data.
    tf.data.experimental.enable_debug_mode()
    tf.keras.utils.set_random_seed(SEED)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    # TensorFlow catches SIGTERM, a notice that leaves time to save, and goes on. Here the last
    # epoch is saved already.
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    is_chief = strategy.extended.should_checkpoint
    # Of this job only: another one may have the same job directory.
    backup_dir = f"{job_dir}/backup/{job_id}"
    digits = load_data()
    global_batch = options.batch_size * strategy.num_replicas_in_sync
    steps_per_epoch = len(digits.train_labels) // global_batch
    with strategy.scope():
        model = build_model(options.learning_rate)
    model.fit(
        distribute(strategy, digits, global_batch),
        epochs=options.epochs,
        steps_per_epoch=steps_per_epoch,
        verbose=0,
        callbacks=[
            tf.keras.callbacks.BackupAndRestore(backup_dir, delete_checkpoint=False),
            Progress(options.epochs, options.epoch_seconds),
        ],
    )
    store_model(model, job_dir, is_chief=is_chief)
    if is_chief:
        accuracy = held_out_accuracy(model, digits)
        print(f"held-out accuracy {accuracy:.4f}", flush=True)
        metrics = {
            "accuracy": accuracy,
            "held_out_images": len(digits.held_out_labels),
            "epochs": options.epochs,
            "replicas": strategy.num_replicas_in_sync,
        }
        with tf.io.gfile.GFile(f"{job_dir}/metrics.json", "w") as file:
            json.dump(metrics, file, indent=2)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the flags. An unknown flag is an error: it may be a misspelt one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--job-dir", required=True, help="where backup, model and metrics go; gs:// or local"
    )
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="images per replica and step")
    parser.add_argument("--learning-rate", type=float, default=0.004)
    parser.add_argument(
        "--epoch-seconds",
        type=float,
        default=0.0,
        help=(
            "minimum duration of an epoch, so that a demonstration is long enough to lose a worker"
        ),
    )
    return parser.parse_args(argv)


def load_data() -> Digits:
    """Load scikit-learn's 1,797 digits.

    The split is the same in every replica and after every restart.
    """
    bunch = load_digits()
    images = (bunch.images / 16.0).astype("float32")[..., np.newaxis]
    labels = bunch.target.astype("int64")
    train_images, held_out_images, train_labels, held_out_labels = train_test_split(
        images, labels, test_size=HELD_OUT, random_state=SEED, stratify=labels
    )
    return Digits(train_images, train_labels, held_out_images, held_out_labels)


def build_model(learning_rate: float) -> Any:
    """Build and compile the model. Call this in the strategy's scope."""
    model = tf.keras.Sequential(
        [
            tf.keras.layers.Input((SIDE, SIDE, 1)),
            tf.keras.layers.Conv2D(16, 3, padding="same", activation="relu"),
            tf.keras.layers.Conv2D(32, 3, padding="same", activation="relu"),
            tf.keras.layers.MaxPooling2D(),
            tf.keras.layers.Flatten(),
            tf.keras.layers.Dropout(0.3),
            tf.keras.layers.Dense(64, activation="relu"),
            tf.keras.layers.Dropout(0.3),
            tf.keras.layers.Dense(CLASSES),
        ]
    )
    model.compile(
        optimizer=tf.keras.optimizers.Adam(learning_rate),
        loss=tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    return model


def distribute(strategy: tf.distribute.Strategy, digits: Digits, global_batch: int) -> Any:
    """Return an endless dataset that gives every replica its own part of the images, without
    overlap.
    """

    def part(context: tf.distribute.InputContext) -> tf.data.Dataset:
        images = tf.data.Dataset.from_tensor_slices((digits.train_images, digits.train_labels))
        return (
            images.shard(context.num_input_pipelines, context.input_pipeline_id)
            .shuffle(len(digits.train_labels), seed=SEED)
            .repeat()
            .batch(context.get_per_replica_batch_size(global_batch))
        )

    return strategy.distribute_datasets_from_function(part)


class Progress(tf.keras.callbacks.Callback):  # type: ignore[misc]  # TensorFlow has no types
    """Print a line per epoch, and the epoch at which training resumes."""

    def __init__(self, epochs: int, epoch_seconds: float) -> None:
        super().__init__()
        self.epochs = epochs
        self.epoch_seconds = epoch_seconds
        self._is_first = True
        self._started_s = 0.0

    def on_epoch_begin(self, epoch: int, _logs: dict[str, float] | None = None) -> None:
        """Report a resumed training: its first epoch is not epoch 0."""
        self._started_s = time.monotonic()
        if self._is_first and epoch > 0:
            print(f"resuming from epoch {epoch + 1}", flush=True)
        self._is_first = False

    def on_epoch_end(self, epoch: int, logs: dict[str, float] | None = None) -> None:
        """Print the metrics, which are aggregated over all replicas."""
        values = logs or {}
        time.sleep(max(0.0, self._started_s + self.epoch_seconds - time.monotonic()))
        loss = values["loss"]
        accuracy = values["accuracy"]
        print(
            f"epoch {epoch + 1}/{self.epochs} loss {loss:.4f} accuracy {accuracy:.4f}", flush=True
        )


def store_model(model: Any, job_dir: str, *, is_chief: bool) -> None:
    """Save the model for serving.

    All replicas take part, because saving may synchronize variables; one copy is kept.

    `export` is used instead of `save`, which also stores objects for further training and needs
    seconds more for it.
    """
    # Export would print its endpoints, once per replica.
    tf.keras.utils.disable_interactive_logging()
    if is_chief:
        model.export(f"{job_dir}/model")
        return
    with tempfile.TemporaryDirectory() as scratch:
        model.export(f"{scratch}/model")


def held_out_accuracy(model: Any, digits: Digits) -> float:
    """Return the accuracy on the held-out images, computed by this replica alone (no collective, no
    padding).
    """
    logits = model(digits.held_out_images, training=False)
    return float(np.mean(np.argmax(logits, axis=-1) == digits.held_out_labels))


if __name__ == "__main__":
    main()
