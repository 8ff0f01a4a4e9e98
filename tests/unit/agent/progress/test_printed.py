"""Progress in the output of programs.

The samples are output of the libraries themselves, shortened.
"""

from __future__ import annotations

import random
import time

import pytest
from tqdm import tqdm  # type: ignore[import-untyped]

from trainmaster.agent.model.reading import METRICS_MAX, Reading
from trainmaster.agent.progress.printed import TEXT_CHARS_MAX, read_printed

TQDM = "\r 45%|████▌     | 450/1000 [00:12<00:15, 36.20it/s, loss=0.12]"
KERAS_3 = (
    "Epoch 3/10\n\r\x1b[1m 45/100\x1b[0m \x1b[32m━━━━━━━━━\x1b[0m\x1b[37m━━━━━━━━━━━\x1b[0m"
    " \x1b[1m0s\x1b[0m 3ms/step - accuracy: 0.8812 - loss: 0.4031"
)


@pytest.mark.parametrize(
    ("text", "share", "step", "steps", "metrics"),
    [
        pytest.param(TQDM, 0.45, 450, 1000, {"loss": 0.12}, id="tqdm"),
        pytest.param(KERAS_3, 0.245, 245, 1000, {"accuracy": 0.8812, "loss": 0.4031}, id="Keras 3"),
        pytest.param(
            f"{KERAS_3}\nEpoch 4/10\n",
            0.3,
            None,
            None,
            {"accuracy": 0.8812, "loss": 0.4031},
            id="Keras 3, the next epoch",
        ),
        pytest.param(
            "Epoch 2/4\n 10/20 [=====>.....] - ETA: 3s - loss: 0.5",
            0.375,
            30,
            80,
            {"loss": 0.5},
            id="Keras 2",
        ),
        pytest.param(
            (
                "{'loss': 0.31, 'grad_norm': '1.5', 'epoch': 0.5}\n"
                " 3%|▎ | 10/300 [00:05<02:25, 2.0it/s]"
            ),
            10 / 300,
            10,
            300,
            {"loss": 0.31, "grad_norm": 1.5, "epoch": 0.5},
            id="transformers",
        ),
        pytest.param(
            "Epoch 3:  45%|████▌     | 45/100 [00:01<00:02, 30.1it/s, v_num=0, train_loss=0.3]",
            None,
            345,
            None,
            {"train_loss": 0.3},
            id="Lightning",
        ),
        pytest.param(
            "Training: |          | 163/? [00:29<00:00, 5.45it/s, v_num=0, train_loss=0.3]",
            None,
            None,
            None,
            {"train_loss": 0.3},
            id="Lightning, steps unknown",
        ),
        pytest.param(
            "Validation: |          | 163/? [00:29<00:00, 5.45it/s, val_loss=0.3]",
            None,
            None,
            None,
            {},
            id="Lightning, validation",
        ),
        pytest.param(
            "Epoch 2/4:  50%|█████     | 5/10 [00:01<00:01, 5.0it/s]",
            0.375,
            15,
            40,
            {},
            id="tqdm of each epoch",
        ),
        pytest.param(
            "Epoch [3/10], Step [45/100], Loss: 0.3456",
            0.245,
            245,
            1000,
            {"loss": 0.3456},
            id="words of a loop with epochs",
        ),
        pytest.param("step 10/100", 0.1, 10, 100, {}, id="words of a loop"),
        pytest.param(
            "Step 10 of 100 loss=1.5e-3",
            0.1,
            10,
            100,
            {"loss": 0.0015},
            id="words of a loop, loss with an exponent",
        ),
        pytest.param("iter 100: loss 2.1, time 20ms", None, 100, None, {"loss": 2.1}, id="nanoGPT"),
        pytest.param(
            (
                " iteration       10/  500000 | consumed samples: 80"
                " | lm loss: 1.07E+01 | grad norm: 2.0 |"
            ),
            10 / 500000,
            10,
            500000,
            {"lm loss": 10.7, "grad norm": 2.0},
            id="Megatron",
        ),
        pytest.param(
            "completed step: 12, seconds: 1.2, TFLOP/s/device: 3.4, loss: 9.3",
            None,
            12,
            None,
            {"loss": 9.3},
            id="MaxText",
        ),
        pytest.param(
            "Train Epoch: 1 [640/60000 (1%)]\tLoss: 2.296",
            None,
            None,
            None,
            {"loss": 2.296},
            id="examples of PyTorch",
        ),
        pytest.param(
            "Epoch 0/24\n----------\ntrain Loss: 0.6 Acc: 0.7",
            0.0,
            None,
            None,
            {"train loss": 0.6, "acc": 0.7},
            id="tutorial of torchvision",
        ),
        pytest.param(
            (
                "\rtotal:  20%|██ | 2/10 [01:00<04:00, 30s/it]\n"
                "\rbatch:  90%|█████████ | 90/100 [00:27<00:03, 3.3it/s]\x1b[A"
            ),
            0.2,
            2,
            10,
            {},
            id="several bars: the one that began first contains the others",
        ),
        pytest.param(
            f"{TQDM}\r 46%|████▌     | 460/1000 [00:13<00:15, 36.20it/s, loss=0.11]",
            0.46,
            460,
            1000,
            {"loss": 0.11},
            id="a newer state of the same bar replaces the older one",
        ),
        pytest.param(
            "Map:  45%|████▌ | 450/1000 [00:10<00:12, 45 examples/s]",
            None,
            None,
            None,
            {},
            id="datasets: no training",
        ),
        pytest.param(
            "Downloading (…)model.bin:  45%|████▌ | 1.2M/2.4M [00:10<00:12, 45kB/s]",
            None,
            None,
            None,
            {},
            id="download: no training",
        ),
        pytest.param(
            "Loading checkpoint shards: 50%|█████ | 1/2 [00:10<00:10, 10s/it]",
            None,
            None,
            None,
            {},
            id="loading of shards: no training",
        ),
        pytest.param(
            "100%|██████████| 1000/1000 [00:27<00:00, 36.20it/s]",
            None,
            None,
            None,
            {},
            id="full bar: no progress",
        ),
        pytest.param("", None, None, None, {}, id="nothing"),
        pytest.param(
            "the step 7 before 2026/11/26 and 1/2 cup; no loss here: -",
            None,
            7,
            None,
            {},
            id="prose",
        ),
    ],
)
def test_line_of_a_library_is_read(
    text: str, share: float | None, step: int | None, steps: int | None, metrics: dict[str, float]
) -> None:
    reading = read_printed(text)
    assert (reading.step, reading.steps) == (step, steps)
    assert reading.metrics == pytest.approx(metrics)
    assert reading.share == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    "text",
    [
        "step 10/5",
        "step 99999999999999999999999999/100",
        "step -3/100",
        "Epoch 0/0",
        "Epoch 7/3",
        "loss: nan",
        "loss: inf",
        "loss: 1e999",
        "  0%|  | 0/0 [00:00<?, ?it/s]",
        "{'loss': nan, 'x': [" + "[" * 5000,
        "\x1b]0;title\x07step \x00 1/2\x1b[2J",
    ],
)
def test_line_without_sense_is_no_share(text: str) -> None:
    reading = read_printed(text)
    assert reading.share is None
    assert not reading.metrics


def test_output_of_tqdm_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    bar = tqdm(total=200, ascii=True, mininterval=0, postfix={"loss": 0.5})
    bar.update(50)
    reading = read_printed(capsys.readouterr().err)
    assert reading == Reading(share=0.25, step=50, steps=200, metrics={"loss": 0.5})
    bar.close()


def test_arbitrary_output_costs_bounded_time_and_few_metrics() -> None:
    alphabet = [
        "step ",
        "Epoch ",
        "1",
        "9" * 30,
        "/",
        "[",
        "|",
        "%",
        " - ",
        "loss",
        ": ",
        "=",
        "\r",
        "\n",
        "\x1b[A",
        "nan",
    ]
    chooser = random.Random(7)  # noqa: S311 - not for security
    texts = ["".join(chooser.choices(alphabet, k=4000)) for _ in range(40)]
    texts += [
        piece * (TEXT_CHARS_MAX // len(piece))
        for piece in ("step 1/2\n", " - a: 1", "1%|", "[1/", "loss ", "9", "{'", " ")
    ]
    for text in texts:
        started = time.process_time()
        reading = read_printed(text)
        assert time.process_time() - started < 1.0
        assert reading.share is None or 0 <= reading.share <= 1
        assert len(reading.metrics) <= METRICS_MAX


@pytest.mark.parametrize(
    "line",
    [
        "learning_rate = 0.001",
        "min_lr = 6e-05",
        "lr: 0.1",
        "Namespace(lr=0.1, momentum=0.9)",
        "learning rate 0.1",
    ],
)
def test_learning_rate_of_a_printed_configuration_is_no_metric(line: str) -> None:
    assert read_printed(f"batch_size = 12\n{line}\n") == Reading.of_steps(None, None, [])


def test_learning_rate_beside_a_loss_or_a_step_is_a_metric() -> None:
    assert dict(read_printed("loss 0.3, lr 0.1\n").metrics) == {"loss": 0.3, "lr": 0.1}
    assert dict(read_printed("step 12: lr 0.1\n").metrics) == {"lr": 0.1}
