"""Train boosted trees on one machine or several, so that they survive the loss of any replica.

    python -m trainer.task --rounds 40 --job-dir gs://BUCKET/xgboost_digits

Every replica runs this program on its own share of the images. WORLD_SIZE, RANK, MASTER_ADDR and MASTER_PORT identify
it, and `peers` connects the replicas. After each round rank 0 stores the trees. A replica that loses a peer exits with
status 1. After the restart it waits for its peers (`--wait-minutes`), and rank 0 sends the stored trees to all, so that
all continue with the same round.

Output in the job directory: `model.ubj`, `metrics.json`.
"""

import argparse
import json
import os
import time
from typing import Any

import numpy as np
import xgboost
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from xgboost import collective

from trainer.job_dir import delete_file, read_file, write_file
from trainer.peers import connected_replicas

SEED = 20
HELD_OUT = 0.2
CLASSES = 10


def main(argv: list[str] | None = None) -> None:
    """Train, evaluate, store."""
    options = parse_arguments(argv)
    job_id = os.environ.get("CLOUD_ML_JOB_ID", "local")
    if is_finished(options.job_dir, job_id):
        print(f"job {job_id} has its results already; nothing left to do", flush=True)
        return
    with connected_replicas(options.wait_minutes * 60):
        train(options, job_id)


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(description="Train boosted trees on one machine or several.")
    parser.add_argument("--job-dir", required=True, help="where checkpoint, model and metrics go; gs:// or local")
    parser.add_argument("--rounds", type=int, default=40, help="boosting rounds, one tree per class in each")
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--learning-rate", type=float, default=0.3)
    parser.add_argument("--round-seconds", type=float, default=0.0, help="minimum duration of a round")
    parser.add_argument("--wait-minutes", type=float, default=30.0, help="how long to wait for lost peers")
    return parser.parse_args(argv)


def train(options: argparse.Namespace, job_id: str) -> None:
    """Run the remaining rounds from the stored trees on, and store the results."""
    is_chief = collective.get_rank() == 0
    checkpoint = f"checkpoint-{job_id}.ubj"
    learn, held_out = load_data(collective.get_rank(), collective.get_world_size())
    model, rounds_done = restore(options.job_dir, checkpoint)
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
        num_boost_round=options.rounds - rounds_done,
        evals=[(held_out, "held_out")],
        xgb_model=model,
        verbose_eval=False,
        callbacks=[Rounds(options, checkpoint if is_chief else None)],
    )
    if is_chief:
        store_results(options, job_id, model, held_out)
    collective.allreduce(np.zeros(1), collective.Op.SUM)  # no replica exits before the results are stored
    if is_chief:
        delete_file(options.job_dir, checkpoint)


def load_data(rank: int, world_size: int) -> tuple[xgboost.DMatrix, xgboost.DMatrix]:
    """Return this replica's share of the 1,437 training images, and all 360 images for evaluation."""
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(images, labels, test_size=HELD_OUT, random_state=SEED, stratify=labels)
    learn_images, held_out_images, learn_labels, held_out_labels = parts
    learn = xgboost.DMatrix(learn_images[rank::world_size], learn_labels[rank::world_size], nthread=1)
    return learn, xgboost.DMatrix(held_out_images, held_out_labels, nthread=1)


def restore(job_dir: str, name: str) -> tuple[xgboost.Booster | None, int]:
    """Return the stored trees and their number of rounds. Rank 0 reads them and sends them to the others."""
    stored = (read_file(job_dir, name) or b"") if collective.get_rank() == 0 else b""
    if collective.is_distributed():
        stored = collective.broadcast(stored, 0)
    if not stored:
        return None, 0
    model = xgboost.Booster(model_file=bytearray(stored))
    rounds_done: int = model.num_boosted_rounds()
    print(f"resuming from round {rounds_done + 1}", flush=True)
    return model, rounds_done


class Rounds(xgboost.callback.TrainingCallback):
    """After each round: keep its minimum duration, store a checkpoint if it has a name, print a line."""

    def __init__(self, options: argparse.Namespace, checkpoint: str | None) -> None:
        self.options = options
        self.checkpoint = checkpoint
        self._started_s = time.monotonic()

    def after_iteration(self, model: xgboost.Booster, _epoch: int, evals_log: dict[str, Any]) -> bool:
        """Return False, which means: continue training."""
        time.sleep(max(0.0, self._started_s + self.options.round_seconds - time.monotonic()))
        self._started_s = time.monotonic()
        rounds_done = model.num_boosted_rounds()
        if self.checkpoint is not None:
            write_file(self.options.job_dir, self.checkpoint, bytes(model.save_raw("ubj")))
        error = evals_log["held_out"]["merror"][-1]
        print(f"round {rounds_done}/{self.options.rounds} held-out error {error:.4f}", flush=True)
        return False


def store_results(options: argparse.Namespace, job_id: str, model: xgboost.Booster, held_out: xgboost.DMatrix) -> None:
    """Write the model and its metrics. Metrics come last: they mark completion."""
    labels = held_out.get_label()
    accuracy = float(np.mean(np.argmax(model.predict(held_out), axis=1) == labels))
    print(f"held-out accuracy {accuracy:.4f}", flush=True)
    write_file(options.job_dir, "model.ubj", bytes(model.save_raw("ubj")))
    metrics = {
        "job_id": job_id,
        "accuracy": accuracy,
        "rounds": model.num_boosted_rounds(),
        "replicas": collective.get_world_size(),
    }
    write_file(options.job_dir, "metrics.json", json.dumps(metrics, indent=2).encode())


def is_finished(job_dir: str, job_id: str) -> bool:
    """Return whether the directory has this job's results. Always False for a manual run, which has no job id."""
    stored = read_file(job_dir, "metrics.json")
    return stored is not None and job_id != "local" and json.loads(stored).get("job_id") == job_id


if __name__ == "__main__":
    main()
