"""Train boosted trees on one machine or several, so that they survive the loss of any replica.

    python -m trainer.task --rounds 40 --job-dir gs://BUCKET/xgboost_digits

Every replica runs this program on its own share of the images; `peers` connects the replicas. After
each round rank 0 stores the trees. When a replica is lost, all start again: rank 0 reads the stored
trees and sends them to the others, so that all continue with the same round.

Output in the job directory: `model.ubj`, `metrics.json`, and the trees after the last round in
`checkpoints/`.
"""

import argparse
import contextlib
import json
import os
import time
from typing import Any

import fsspec
import numpy as np
import xgboost
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from xgboost import collective

from trainer.peers import connected_replicas

SEED = 20
HELD_OUT = 0.2
CLASSES = 10
WAIT_S = 30 * 60  # a replica that got another VM may be minutes late


def main(argv: list[str] | None = None) -> None:
    """Train, evaluate, store."""
    options = parse_arguments(argv)
    with connected_replicas(WAIT_S):
        train(options)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(description="Train boosted trees on one machine or several.")
    parser.add_argument(
        "--job-dir", required=True, help="where checkpoint, model and metrics go; gs:// or local"
    )
    parser.add_argument(
        "--rounds", type=int, default=40, help="boosting rounds, one tree per class in each"
    )
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=0.3)
    parser.add_argument(
        "--round-seconds", type=float, default=0.0, help="minimum duration of a round"
    )
    return parser.parse_args(argv)


def train(options: argparse.Namespace) -> None:
    """Run the remaining rounds from the stored trees on, and store the results."""
    job_dir = options.job_dir.rstrip("/")
    job_id = os.environ.get("CLOUD_ML_JOB_ID", "local")
    # Of this job only: another one may have the same directory.
    checkpoint = f"{job_dir}/checkpoints/{job_id}.ubj"
    learn, held_out = load_data(collective.get_rank(), collective.get_world_size())
    model = restore(checkpoint)
    model = xgboost.train(
        {
            "objective": "multi:softprob",
            "eval_metric": "merror",
            "num_class": CLASSES,
            "max_depth": options.depth,
            "eta": options.learning_rate,
            "nthread": 1,  # omit it with more data
            "seed": SEED,
        },
        learn,
        num_boost_round=options.rounds - (model.num_boosted_rounds() if model else 0),
        evals=[(held_out, "held_out")],
        xgb_model=model,
        verbose_eval=False,
        callbacks=[Rounds(options, checkpoint)],
    )
    if collective.get_rank() == 0:
        store_results(job_dir, model, held_out)


def load_data(rank: int, world_size: int) -> tuple[xgboost.DMatrix, xgboost.DMatrix]:
    """Return this replica's share of the 1,437 training images, and all 360 images for
    evaluation.
    """
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images, labels, test_size=HELD_OUT, random_state=SEED, stratify=labels)
    learn_images, held_out_images, learn_labels, held_out_labels = parts
    learn = xgboost.DMatrix(
        learn_images[rank::world_size], learn_labels[rank::world_size], nthread=1
    )
    return learn, xgboost.DMatrix(held_out_images, held_out_labels, nthread=1)


def restore(checkpoint: str) -> xgboost.Booster | None:
    """Return the stored trees, if there are any. Rank 0 reads them and sends them to the others."""
    stored = b""
    if collective.get_rank() == 0:
        with contextlib.suppress(FileNotFoundError), fsspec.open(checkpoint, "rb") as file:
            stored = file.read()
    if collective.is_distributed():
        stored = collective.broadcast(stored, 0)
    if not stored:
        return None
    model = xgboost.Booster(model_file=bytearray(stored))
    print(f"resuming from round {model.num_boosted_rounds() + 1}", flush=True)
    return model


class Rounds(xgboost.callback.TrainingCallback):
    """After each round: keep its minimum duration, store the trees on rank 0, print a line."""

    def __init__(self, options: argparse.Namespace, checkpoint: str) -> None:
        self.options = options
        self.checkpoint = checkpoint
        self._started_s = time.monotonic()

    def after_iteration(
        self, model: xgboost.Booster, _epoch: int, evals_log: dict[str, Any]
    ) -> bool:
        """Return False, which means: continue training."""
        time.sleep(max(0.0, self._started_s + self.options.round_seconds - time.monotonic()))
        self._started_s = time.monotonic()
        if collective.get_rank() == 0:
            save(model, self.checkpoint)
        error = evals_log["held_out"]["merror"][-1]
        print(
            f"round {model.num_boosted_rounds()}/{self.options.rounds} held-out error {error:.4f}",
            flush=True,
        )
        return False


def save(model: xgboost.Booster, path: str) -> None:
    """Write the trees. In Cloud Storage the file appears when it is closed, never a part of it."""
    with fsspec.open(path, "wb") as file:
        file.write(model.save_raw("ubj"))


def store_results(job_dir: str, model: xgboost.Booster, held_out: xgboost.DMatrix) -> None:
    """Write the model and its metrics."""
    accuracy = float(np.mean(np.argmax(model.predict(held_out), axis=1) == held_out.get_label()))
    print(f"held-out accuracy {accuracy:.4f}", flush=True)
    save(model, f"{job_dir}/model.ubj")
    metrics = {
        "accuracy": accuracy,
        "rounds": model.num_boosted_rounds(),
        "replicas": collective.get_world_size(),
    }
    with fsspec.open(f"{job_dir}/metrics.json", "w") as file:
        json.dump(metrics, file, indent=2)


if __name__ == "__main__":
    main()
