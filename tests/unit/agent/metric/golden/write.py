"""Write one of the golden event files.

It runs in an environment that has the library, not in the tests.

    python write.py tensorflow2|tensorflow1|torch|torch_double|tensorboardx FILE

Each file has `accuracy` 0.25 at step 10 and 0.75 at step 20, `loss` 2.5 at step 20, and a text or a
histogram between them. Written with TensorFlow 2.21.0, PyTorch 2.13.0 with TensorBoard 2.21.0, and
tensorboardX 2.6.5.
"""

from __future__ import annotations

import importlib
import shutil
import sys
import tempfile
from pathlib import Path

POINTS = ((10, 0.25), (20, 0.75))
"""Steps and values of `accuracy`."""


def write_tensorflow2(folder: str) -> None:
    summary = importlib.import_module("tensorflow").summary
    with summary.create_file_writer(folder).as_default():
        for step, value in POINTS:
            summary.scalar("accuracy", value, step=step)
            summary.text("note", "ü", step=step)
        summary.scalar("loss", 2.5, step=20)


def write_tensorflow1(folder: str) -> None:
    """As an Estimator does: several values in one event, below a graph."""
    tf1 = importlib.import_module("tensorflow").compat.v1
    with tf1.Graph().as_default() as graph:
        tf1.constant(1.0)
        writer = tf1.summary.FileWriter(folder, graph=graph)
    value_type = tf1.Summary.Value
    for step, value in POINTS:
        loss = [value_type(tag="loss", simple_value=2.5)] if step == 20 else []
        writer.add_summary(
            tf1.Summary(value=[*loss, value_type(tag="accuracy", simple_value=value)]), step
        )
    writer.close()


def write_torch(folder: str, *, double: bool = False) -> None:
    writer = importlib.import_module("torch.utils.tensorboard").SummaryWriter(folder)
    for step, value in POINTS:
        writer.add_scalar("accuracy", value, step, new_style=double, double_precision=double)
        writer.add_text("note", "ü", step)
    writer.add_scalar("loss", 2.5, 20)
    writer.close()


def write_tensorboardx(folder: str) -> None:
    writer = importlib.import_module("tensorboardX").SummaryWriter(folder)
    for step, value in POINTS:
        writer.add_scalar("accuracy", value, step)
        writer.add_text("note", "ü", step)
    writer.add_scalar("loss", 2.5, 20)
    writer.close()


def main(writer: str, file: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if writer == "torch_double":
            write_torch(folder, double=True)
        else:
            {
                "tensorflow1": write_tensorflow1,
                "tensorflow2": write_tensorflow2,
                "torch": write_torch,
                "tensorboardx": write_tensorboardx,
            }[writer](folder)
        (written,) = Path(folder).rglob("*tfevents*")
        shutil.copyfile(written, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
