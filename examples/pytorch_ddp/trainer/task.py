"""Train a digit classifier with DistributedDataParallel, so that it survives the loss of any
replica.

    python -m trainer.task --epochs 12 --job-dir gs://BUCKET/pytorch_ddp

Every replica runs this program; WORLD_SIZE, RANK, MASTER_ADDR and MASTER_PORT identify it. After
each epoch rank 0 stores a checkpoint. A replica that loses a peer fails at its next collective, and
all start again. Rank 0 reads the last checkpoint and sends it to the others, so no two can continue
with different epochs.

Output in the job directory: `model.pt` (the state dictionary), `metrics.json`, and the last
checkpoint in `checkpoints/`.
"""

import argparse
import contextlib
import json
import os
import time
from dataclasses import dataclass
from typing import Any

import fsspec
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

SEED = 20
HELD_OUT = 0.2


@dataclass(frozen=True)
class Digits:
    """Images of 64 values in 0..1 with their labels: one part for training, one for evaluation."""

    train: TensorDataset
    held_out: TensorDataset


def main(argv: list[str] | None = None) -> None:
    """Train, evaluate, store."""
    options = parse_arguments(argv)
    torch.manual_seed(SEED)
    torch.set_num_threads(1)  # the model is too small to profit from threads
    distributed.init_process_group("gloo")
    train(options)
    distributed.destroy_process_group()


def parse_arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the flags."""
    parser = argparse.ArgumentParser(
        description="Train a digit classifier with DistributedDataParallel."
    )
    parser.add_argument(
        "--job-dir", required=True, help="where checkpoint, model and metrics go; gs:// or local"
    )
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--batch-size", type=int, default=32, help="images per replica and step")
    parser.add_argument("--learning-rate", type=float, default=0.004)
    parser.add_argument(
        "--epoch-seconds", type=float, default=0.0, help="minimum duration of an epoch"
    )
    return parser.parse_args(argv)


def train(options: argparse.Namespace) -> None:
    """Run the remaining epochs from the last checkpoint on, and store the results."""
    job_dir = options.job_dir.rstrip("/")
    job_id = os.environ.get("CLOUD_ML_JOB_ID", "local")
    # Of this job only: another one may have the same directory.
    checkpoint = f"{job_dir}/checkpoints/{job_id}.pt"
    is_chief = distributed.get_rank() == 0
    digits = load_data()
    model = build_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=options.learning_rate)
    epochs_done = restore(checkpoint, model, optimizer)
    parallel = DistributedDataParallel(model)
    sampler: DistributedSampler[Any] = DistributedSampler(digits.train, seed=SEED)
    loader = DataLoader(digits.train, batch_size=options.batch_size, sampler=sampler)
    for epoch in range(epochs_done, options.epochs):
        started_s = time.monotonic()
        # A different order in each epoch, but the same one when an epoch is repeated.
        sampler.set_epoch(epoch)
        loss, accuracy = train_epoch(parallel, optimizer, loader)
        time.sleep(max(0.0, started_s + options.epoch_seconds - time.monotonic()))
        if prints_progress():
            print(
                f"epoch {epoch + 1}/{options.epochs} loss {loss:.4f} accuracy {accuracy:.4f}",
                flush=True,
            )
        if is_chief:
            save(
                {
                    "epochs_done": epoch + 1,
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                },
                checkpoint,
            )
    if is_chief:
        store_results(options.epochs, job_dir, model, digits)


def prints_progress() -> bool:
    """Return whether this process prints: one of each VM does, if torchrun started several."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def load_data() -> Digits:
    """Load scikit-learn's 1,797 digits.

    The split is the same in every replica and after every restart.
    """
    images, labels = load_digits(return_X_y=True)
    parts = train_test_split(
        images / 16.0, labels, test_size=HELD_OUT, random_state=SEED, stratify=labels
    )
    train_images, held_out_images = (torch.tensor(part, dtype=torch.float32) for part in parts[:2])
    train_labels, held_out_labels = (torch.tensor(part, dtype=torch.int64) for part in parts[2:])
    return Digits(
        TensorDataset(train_images, train_labels), TensorDataset(held_out_images, held_out_labels)
    )


def build_model() -> torch.nn.Module:
    """Build the model: 8 by 8 pixels in, ten logits out."""
    return torch.nn.Sequential(
        torch.nn.Unflatten(1, (1, 8, 8)),
        torch.nn.Conv2d(1, 16, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.MaxPool2d(2),
        torch.nn.Conv2d(16, 32, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(32 * 4 * 4, 64),
        torch.nn.ReLU(),
        torch.nn.Linear(64, 10),
    )


def save(state: dict[str, Any], path: str) -> None:
    """Write tensors. In Cloud Storage the file appears when it is closed, never a part of it."""
    with fsspec.open(path, "wb") as file:
        torch.save(state, file)


def restore(checkpoint: str, model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Load the last checkpoint, if there is one, into model and optimizer; return the epochs done.

    Rank 0 reads the checkpoint and sends it to the others, so that all replicas have the same one.
    """
    shared: list[dict[str, Any] | None] = [None]
    if distributed.get_rank() == 0:
        with contextlib.suppress(FileNotFoundError), fsspec.open(checkpoint, "rb") as file:
            shared = [torch.load(file, weights_only=True)]
    distributed.broadcast_object_list(shared, src=0)
    state = shared[0]
    if state is None:
        return 0
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    epochs_done: int = state["epochs_done"]
    if prints_progress():
        print(f"resuming from epoch {epochs_done + 1}", flush=True)
    return epochs_done


def train_epoch(
    model: DistributedDataParallel, optimizer: torch.optim.Optimizer, loader: DataLoader[Any]
) -> tuple[float, float]:
    """Train one epoch; return loss and accuracy over the images of all replicas."""
    totals = torch.zeros(3)  # loss, right answers, images
    for images, labels in loader:
        optimizer.zero_grad()
        logits = model(images)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        right = (logits.argmax(dim=1) == labels).sum().item()
        totals += torch.tensor([loss.item() * len(labels), right, len(labels)])
    distributed.all_reduce(totals)
    loss_sum, right_sum, images_sum = totals.tolist()
    return loss_sum / images_sum, right_sum / images_sum


def store_results(epochs: int, job_dir: str, model: torch.nn.Module, digits: Digits) -> None:
    """Evaluate the model on the held-out images; write the model and its metrics."""
    images, labels = digits.held_out.tensors
    with torch.no_grad():
        accuracy = (model(images).argmax(dim=1) == labels).float().mean().item()
    print(f"held-out accuracy {accuracy:.4f}", flush=True)
    save(model.state_dict(), f"{job_dir}/model.pt")
    metrics = {
        "accuracy": accuracy,
        "held_out_images": len(labels),
        "epochs": epochs,
        "replicas": distributed.get_world_size(),
    }
    with fsspec.open(f"{job_dir}/metrics.json", "w") as file:
        json.dump(metrics, file, indent=2)


if __name__ == "__main__":
    main()
