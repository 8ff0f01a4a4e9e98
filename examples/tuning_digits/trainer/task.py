"""Train one trial of a tuning job: a small network on scikit-learn's handwritten digits, on one
machine.

    python -m trainer.task --learning_rate 0.01 --hidden_units 32 --activation relu --job-dir
    gs://BUCKET/digits/1

The tuning job passes each trial its hyperparameters as flags, and its own job directory. After
every epoch the trial reports its held-out accuracy with cloudml-hypertune; the tuning job optimizes
this metric.

Output in the job directory: `model.joblib`, `metrics.json`. Training takes seconds, so a restart
begins from scratch.
"""

import argparse
import json

import fsspec
import joblib
import numpy as np
from hypertune import HyperTune
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier

SEED = 20
HELD_OUT = 0.2
PIXEL_MAX = 16
METRIC = "accuracy"  # the job file's hyperparameterMetricTag


def main(argv: list[str] | None = None) -> None:
    """Train, report, store."""
    options = parse(argv)
    images, labels = load_digits(return_X_y=True)
    train_images, held_out_images, train_labels, held_out_labels = train_test_split(
        images / PIXEL_MAX, labels, test_size=HELD_OUT, random_state=SEED, stratify=labels
    )
    model = MLPClassifier(
        hidden_layer_sizes=(options.hidden_units,),
        activation=options.activation,
        learning_rate_init=options.learning_rate,
        random_state=SEED,
    )
    tuner = HyperTune()
    accuracy = 0.0
    for epoch in range(1, options.epochs + 1):
        model.partial_fit(train_images, train_labels, classes=np.unique(labels))
        accuracy = float(model.score(held_out_images, held_out_labels))
        print(f"epoch {epoch}/{options.epochs} held-out accuracy {accuracy:.4f}", flush=True)
        tuner.report_hyperparameter_tuning_metric(METRIC, accuracy, global_step=epoch)

    job_dir = options.job_dir.rstrip("/")
    with fsspec.open(f"{job_dir}/model.joblib", "wb") as file:
        joblib.dump(model, file)
    print(f"model at {job_dir}/model.joblib", flush=True)
    metrics = {"accuracy": accuracy, "epochs": options.epochs, **hyperparameters(options)}
    with fsspec.open(f"{job_dir}/metrics.json", "w") as file:
        json.dump(metrics, file, indent=2)


def parse(argv: list[str] | None) -> argparse.Namespace:
    """Read the flags. Hyperparameters have the names of the job file."""
    parser = argparse.ArgumentParser(description="Train one trial on handwritten digits.")
    parser.add_argument(
        "--job-dir", required=True, help="where the model and the metrics go; gs:// or local"
    )
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--learning_rate", type=float, default=0.001)
    parser.add_argument("--hidden_units", type=int, default=32)
    parser.add_argument("--activation", choices=["relu", "tanh"], default="relu")
    return parser.parse_args(argv)


def hyperparameters(options: argparse.Namespace) -> dict[str, object]:
    """Return the trial's hyperparameters."""
    return {
        name: getattr(options, name) for name in ("learning_rate", "hidden_units", "activation")
    }


if __name__ == "__main__":
    main()
