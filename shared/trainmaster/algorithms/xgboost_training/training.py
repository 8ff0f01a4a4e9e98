"""The boosting rounds: on one replica or on all of a job, with checkpoints, from which a restarted
job continues.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import xgboost
from xgboost import collective

from ..arguments.argument import Values, integer_in, number_in
from ..files import join, read_file, write_file
from ..results import checkpoint_folder, report_metrics
from ..xgboost_training.parameters import common_metrics, xgboost_parameters

CHECKPOINT: Final = "model.ubj"
"""Name of the file with the model after the last stored round."""
EVALUATED: Final = "validation"
"""Name of the evaluated rows in XGBoost's history and texts."""


def boost(
    values: Values, training: xgboost.DMatrix, validation: xgboost.DMatrix, *, device: str = "cpu"
) -> tuple[xgboost.Booster, dict[str, float]]:
    """Run the rounds that no checkpoint has, and return the model and the metrics of its last round
    on the validation data.

    Every replica calls this with its share of the rows; all get the same model and metrics. A
    replica without peers has rank 0.
    """
    rounds = integer_in(values, "num_boost_round")
    folder = checkpoint_folder(str(values["job_dir"]))
    model = _restore(folder)
    rounds_done = model.num_boosted_rounds() if model is not None else 0
    history: dict[str, dict[str, list[float]]] = {}
    is_first = collective.get_rank() == 0
    progress = _Progress(
        rounds,
        folder if is_first else None,
        number_in(values, "checkpoint_secs"),
        is_first=is_first,
    )
    model = xgboost.train(
        {**xgboost_parameters(values), "device": device},
        training,
        num_boost_round=max(0, rounds - rounds_done),
        evals=[(validation, EVALUATED)],
        evals_result=history,
        xgb_model=model,
        verbose_eval=False,
        callbacks=[progress],
    )
    if not history:  # a restarted job whose rounds were all done
        return model, evaluate(model, validation)
    return model, common_metrics(_last(history))


def write_model(job_dir: str, model: xgboost.Booster) -> None:
    """Write the model as XGBoost's binary JSON, and a copy under AI Platform Training's name."""
    content = bytes(model.save_raw("ubj"))
    for name in ("model.ubj", "model.bst"):
        write_file(join(job_dir, "model", name), content)


def evaluate(model: xgboost.Booster, matrix: xgboost.DMatrix) -> dict[str, float]:
    """Return the metrics of a model.

    XGBoost's text of them is `[0]<tab>validation-rmse:0.5<tab>…`.
    """
    parts = model.eval(matrix, EVALUATED).split("\t")[1:]
    pairs = (part.removeprefix(f"{EVALUATED}-").rpartition(":") for part in parts)
    return common_metrics({name: float(value) for name, _, value in pairs})


def _restore(folder: str | None) -> xgboost.Booster | None:
    """Return the stored rounds. Rank 0 reads them and sends them to the others."""
    is_first = collective.get_rank() == 0
    stored = b""
    if folder and is_first:
        stored = read_file(join(folder, CHECKPOINT)) or b""
    if collective.is_distributed():
        stored = collective.broadcast(stored, 0)
    if not stored:
        return None
    model = xgboost.Booster(model_file=bytearray(stored))
    if is_first:
        print(f"resuming after round {model.num_boosted_rounds()}", flush=True)
    return model


class _Progress(xgboost.callback.TrainingCallback):  # type: ignore[misc]  # not installed here
    """After each round: print and report its metrics, and store a checkpoint when one is due.

    `rounds`: how many there will be. `folder`: of checkpoints; None: none are stored. `every_s`:
    seconds between checkpoints. `is_first`: whether this is rank 0; other replicas do nothing.
    """

    def __init__(self, rounds: int, folder: str | None, every_s: float, *, is_first: bool) -> None:
        self._rounds = rounds
        self._folder = folder
        self._every_s = every_s
        self._is_first = is_first
        self._stored_at_s = time.monotonic()

    def after_iteration(
        self, model: xgboost.Booster, _epoch: int, evals_log: Mapping[str, Any]
    ) -> bool:
        """Return False, which means: continue training."""
        if not self._is_first:
            return False
        done = model.num_boosted_rounds()
        metrics = common_metrics(_last(evals_log))
        shown = " ".join(f"{name} {value:.5f}" for name, value in metrics.items())
        print(f"round {done}/{self._rounds} {shown}", flush=True)
        report_metrics(metrics, done)
        is_due = time.monotonic() - self._stored_at_s >= self._every_s or done == self._rounds
        if self._folder is not None and is_due:
            write_file(join(self._folder, CHECKPOINT), bytes(model.save_raw("ubj")))
            self._stored_at_s = time.monotonic()
        return False


def _last(history: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of the last round in XGBoost's history: rows → metric → value per round.

    A value with a standard deviation is a pair.
    """
    return {
        name: float(np.asarray(values[-1]).ravel()[0])
        for name, values in history[EVALUATED].items()
    }
