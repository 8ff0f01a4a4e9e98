"""Train a support vector machine on scikit-learn's handwritten digits, on one machine.

    python -m trainer.task --gamma 0.001 --job-dir gs://BUCKET/sklearn_digits

Output in the job directory: `model.joblib`, `metrics.json`. Training takes a second, so a restart
begins from scratch.
"""

import argparse
import json

import fsspec
import joblib
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.svm import SVC

SEED = 20
HELD_OUT = 0.2


def main(argv: list[str] | None = None) -> None:
    """Train, evaluate, store."""
    parser = argparse.ArgumentParser(
        description="Train a support vector machine on handwritten digits."
    )
    parser.add_argument(
        "--job-dir", required=True, help="where the model and the metrics go; gs:// or local"
    )
    parser.add_argument("--gamma", type=float, default=0.001, help="width of the radial kernel")
    parser.add_argument(
        "--regularization", type=float, default=10.0, help="the C of the support vector machine"
    )
    options = parser.parse_args(argv)

    images, labels = load_digits(return_X_y=True)
    train_images, held_out_images, train_labels, held_out_labels = train_test_split(
        images, labels, test_size=HELD_OUT, random_state=SEED, stratify=labels
    )
    model = SVC(gamma=options.gamma, C=options.regularization).fit(train_images, train_labels)
    accuracy = float(model.score(held_out_images, held_out_labels))
    print(f"held-out accuracy {accuracy:.4f}", flush=True)

    job_dir = options.job_dir.rstrip("/")
    with fsspec.open(f"{job_dir}/model.joblib", "wb") as file:
        joblib.dump(model, file)
    print(f"model at {job_dir}/model.joblib", flush=True)
    metrics = {
        "accuracy": accuracy,
        "held_out_images": len(held_out_labels),
        "gamma": options.gamma,
    }
    with fsspec.open(f"{job_dir}/metrics.json", "w") as file:
        json.dump(metrics, file, indent=2)


if __name__ == "__main__":
    main()
