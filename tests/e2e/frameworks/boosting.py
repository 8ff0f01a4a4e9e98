"""Distributed training with XGBoost, as its page about the collective module shows it.

The module `peers` of the example `xgboost_digits` connects the replicas. XGBoost's tracker cannot
listen on the same port again for a minute after a peer was lost, on any platform.

`slow_input.py` beside this file makes each step half a second long, so that a test can end the
program midway.
"""

import os
import sys
from pathlib import Path

import numpy as np
import xgboost as xgb
from trainer.peers import connected_replicas
from trainer.slow_input import SAVE_EVERY, STEPS, wait

rank = int(os.environ["RANK"])


class Steps(xgb.callback.TrainingCallback):
    def after_iteration(self, model, epoch, evals_log):
        wait()
        print(f"step {first + epoch + 1}/{STEPS}", flush=True)
        return False


with connected_replicas(wait_s=600):
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
