"""The training loop of the Keras algorithms: steps, evaluations, summaries and checkpoints.

`learner.py` calls `fit`. A restarted job continues at its last checkpoint.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from ..arguments.argument import Values, integer_in
from ..arguments.keras import PASSES, STEPS_MIN
from ..files import join, read_folder, write_folder
from ..results import checkpoint_folder, report_metrics

Array = np.ndarray[Any, Any]
SHUFFLED_ROWS_MAX = 100_000
"""Rows that are shuffled together, at most."""
PREFETCHED_BATCHES = 2
"""Batches that are prepared while the model trains on an earlier one."""
CHECKPOINT = "checkpoint-1"
"""Name of the only checkpoint, which each new one replaces."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Encoded rows, as arrays with one element or row for each of them."""

    inputs: Mapping[str, Array]
    """By the keys of `rows.Inputs`: numbers, float32 [rows, numbers]; categories, int64 [rows,
    categories].
    """
    targets: Array
    """Numbers of classes, or standardized numbers."""

    def __len__(self) -> int:
        return len(self.targets)


def step_count(values: Values, rows: int) -> int:
    """Return the number of training steps: `max_steps`, or if that is not positive, `PASSES` over
    the data, but at least `STEPS_MIN`.
    """
    steps = integer_in(values, "max_steps")
    if steps > 0:
        return steps
    steps_per_pass = math.ceil(rows / integer_in(values, "batch_size"))
    return max(STEPS_MIN, PASSES * steps_per_pass)


def fit(
    model: Any, values: Values, training: Rows, evaluate: Callable[[], dict[str, float]]
) -> int:
    """Train the compiled model, and return the number of steps done, with those before a restart.

    `evaluate` returns the metrics that are printed and reported every `eval_frequency_secs`.
    """
    batch = min(integer_in(values, "batch_size"), len(training))
    total = step_count(values, len(training))
    with tempfile.TemporaryDirectory() as scratch:
        progress = Progress(model, values, Path(scratch), evaluate)
        done = progress.restore()
        if done < total:
            rows = tf.data.Dataset.from_tensor_slices((dict(training.inputs), training.targets))
            seed = integer_in(values, "seed") + done
            rows = rows.shuffle(min(len(training), SHUFFLED_ROWS_MAX), seed=seed).repeat()
            batches = rows.batch(batch, drop_remainder=True).prefetch(PREFETCHED_BATCHES)
            model.fit(
                batches, steps_per_epoch=total - done, epochs=1, verbose=0, callbacks=[progress]
            )
        progress.finish()
        return progress.step


class Progress(tf_keras.callbacks.Callback):  # type: ignore[misc]  # Keras has no types
    """Evaluates and stores checkpoints every `eval_frequency_secs`; ends the training after
    `max_train_secs`.
    """

    def __init__(
        self, model: Any, values: Values, scratch: Path, evaluate: Callable[[], dict[str, float]]
    ) -> None:
        super().__init__()
        job_dir = str(values["job_dir"])
        self.step = 0
        self._values = values
        self._scratch = scratch
        self._evaluate = evaluate
        self._stored = checkpoint_folder(job_dir)
        self._experiment = join(job_dir, "experiment")
        self._checkpoint = tf.train.Checkpoint(model=model, step=tf.Variable(0, dtype=tf.int64))
        self._summaries = tf.summary.create_file_writer(str(scratch / "summaries"))
        self._started_s = self._evaluated_s = time.monotonic()
        self._reported_step = -1

    def restore(self) -> int:
        """Read the job's last checkpoint, if there is one, and return its step."""
        folder = self._scratch / "restored"
        if self._stored is not None and read_folder(self._stored, folder):
            self._checkpoint.restore(str(folder / CHECKPOINT))
            self.step = int(self._checkpoint.step.numpy())
            print(f"resuming after step {self.step}", flush=True)
        return self.step

    def on_train_batch_end(self, _batch: int, logs: Mapping[str, float] | None = None) -> None:
        """Count the step, and do what is due."""
        self.step += 1
        now = time.monotonic()
        if now - self._evaluated_s >= integer_in(self._values, "eval_frequency_secs"):
            self._report()
            self._evaluated_s = time.monotonic()
        limit = integer_in(self._values, "max_train_secs")
        if 0 < limit <= now - self._started_s:
            print(f"stopping after {limit} seconds (max_train_secs)", flush=True)
            self.model.stop_training = True
        del logs

    def finish(self) -> None:
        """Evaluate and store once more at the end."""
        if self._reported_step != self.step:
            self._report()
        self._summaries.close()

    def _report(self) -> None:
        """Evaluate; print, report and store the metrics; store a checkpoint."""
        metrics = self._evaluate()
        shown = " ".join(f"{name} {value:.5f}" for name, value in metrics.items())
        print(f"step {self.step} {shown}", flush=True)
        report_metrics(metrics, self.step)
        with self._summaries.as_default(step=self.step):
            for name, value in metrics.items():
                tf.summary.scalar(name, value)
        self._summaries.flush()
        write_folder(self._scratch / "summaries", join(self._experiment, "summaries"))
        self._reported_step = self.step
        if self._stored is not None:
            self._checkpoint.step.assign(self.step)
            self._checkpoint.write(str(self._scratch / "checkpoint" / CHECKPOINT))
            write_folder(self._scratch / "checkpoint", self._stored)
