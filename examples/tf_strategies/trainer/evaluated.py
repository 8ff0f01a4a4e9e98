"""Train on the chief while an evaluator, outside the cluster, evaluates each checkpoint when it
appears.

    python -m trainer.evaluated --job-dir gs://BUCKET/tf_evaluator

Both replicas run this module. The evaluator is a task in TF_CONFIG but not a member of the cluster:
no collective includes it, so training continues when it is lost. It reads the chief's checkpoints
and may skip some.

The job ends when the chief exits with status 0, and the evaluator is shut down with it. The chief
therefore waits for the last evaluation. Output in the job directory: the chief writes `model/` and
`metrics.json`, the evaluator `evaluations/JOB_ID/EPOCH`, each with an accuracy.
"""

import argparse
import json
import os
import time

import tensorflow as tf

from trainer import digits

POLL_S = 0.5


def main(argv: list[str] | None = None) -> None:
    """Train or evaluate, depending on the task type in TF_CONFIG."""
    parser = digits.flags("Train on the chief, evaluate on an evaluator.")
    parser.add_argument(
        "--evaluator-minutes", type=float, default=15.0, help="how long the chief waits at the end"
    )
    options = parser.parse_args(argv)
    task_type = json.loads(os.environ.get("TF_CONFIG", "{}")).get("task", {}).get("type")
    if task_type == "evaluator":
        evaluate(options)
    else:
        train(options)


def train(options: argparse.Namespace) -> None:
    """Train, wait for the evaluator, store."""
    tf.keras.utils.set_random_seed(digits.SEED)
    (images, labels), _ = digits.load()
    model = digits.compiled_model()
    checkpoints = digits.Checkpoints(model, options.job_dir)
    model.fit(
        digits.endless(images, labels, options.batch_size),
        initial_epoch=checkpoints.restore(),
        epochs=options.epochs,
        steps_per_epoch=len(labels) // options.batch_size,
        verbose=0,
        callbacks=[digits.Epochs(options, checkpoints)],
    )
    epochs = wait_for_evaluation(options)
    digits.store_results(model, options.job_dir, strategy="evaluator", evaluated_epochs=epochs)


def wait_for_evaluation(options: argparse.Namespace) -> list[int]:
    """Return the evaluated epochs, after the last one is among them or `evaluator_minutes` are
    over.
    """
    deadline = time.monotonic() + options.evaluator_minutes * 60
    while True:
        files = tf.io.gfile.glob(f"{digits.own_folder(options.job_dir, 'evaluations')}/*")
        epochs = sorted(int(file.rpartition("/")[2]) for file in files)
        if options.epochs in epochs or time.monotonic() > deadline:
            return epochs
        time.sleep(POLL_S)


def evaluate(options: argparse.Namespace) -> None:
    """Evaluate the latest checkpoint repeatedly, up to the last epoch's.

    Some checkpoints may be skipped.
    """
    images, labels = digits.load()[1]
    tf.keras.utils.SidecarEvaluator(
        model=digits.compiled_model(),
        data=tf.data.Dataset.from_tensor_slices((images, labels)).batch(len(labels)),
        checkpoint_dir=digits.own_folder(options.job_dir, "checkpoints"),
        max_evaluations=options.epochs,
        callbacks=[Record(options)],
    ).start()


class Record(tf.keras.callbacks.Callback):  # type: ignore[misc]  # TensorFlow has no types
    """Write a file with the accuracy of each evaluation."""

    def __init__(self, options: argparse.Namespace) -> None:
        super().__init__()
        self.options = options

    def on_test_end(self, logs: dict[str, float] | None = None) -> None:
        """Print and store the accuracy. The restored optimizer's step count gives the epoch."""
        steps_per_epoch = len(digits.load()[0][1]) // self.options.batch_size
        epoch = int(self.model.optimizer.iterations.numpy()) // steps_per_epoch
        accuracy = float((logs or {})["accuracy"])
        print(f"evaluated epoch {epoch} accuracy {accuracy:.4f}", flush=True)
        folder = digits.own_folder(self.options.job_dir, "evaluations")
        tf.io.gfile.makedirs(folder)
        with tf.io.gfile.GFile(f"{folder}/{epoch}", "w") as file:
            file.write(f"{accuracy:.4f}\n")


if __name__ == "__main__":
    main()
