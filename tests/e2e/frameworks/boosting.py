"""XGBoost, after its page "Distributed training with the collective module": a tracker beside rank 0."""

import os
import sys
from pathlib import Path

import numpy as np
import xgboost as xgb
from trainer.slow_input import SAVE_EVERY, STEPS, wait
from xgboost import collective
from xgboost.tracker import RabitTracker

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if rank == 0:
    tracker = RabitTracker(size, address, port, sortby="task")
    tracker.start()


class Steps(xgb.callback.TrainingCallback):
    def after_iteration(self, model, epoch, evals_log):
        wait()
        return False


with collective.CommunicatorContext(
    dmlc_tracker_uri=address, dmlc_tracker_port=port, dmlc_task_id=str(rank), dmlc_retry=600
):
    saved = sorted(Path(sys.argv[1]).glob("model_*.ubj"))
    model = xgb.Booster(model_file=saved[-1]) if saved else None
    first = model.num_boosted_rounds() if model else 0
    rows = xgb.DMatrix(np.random.default_rng(0).normal(size=(64, 4)), np.arange(64) % 2)
    for end in range(first + SAVE_EVERY, STEPS + 1, SAVE_EVERY):
        model = xgb.train(
            {"max_depth": 1},
            rows,
            num_boost_round=end - first,
            xgb_model=model,
            evals=[(rows, "train")],
            callbacks=[Steps()],
        )
        first = end
        if rank == 0:
            model.save_model(Path(sys.argv[1], f"model_{end:04}.ubj"))
if rank == 0:
    tracker.wait_for()
