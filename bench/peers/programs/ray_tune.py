"""Eight trials on Ray Tune: `ray_tune.py FILE ADDRESS`."""

import sys

import ray
import trial
from ray import tune

FILE = sys.argv[1]
"""The first argument of this process. In a trial, sys.argv is that of Ray's worker."""


def objective(config):
    tune.report({"accuracy": trial.run(FILE, config["rate"])})


ray.init(address=sys.argv[2])
tune.Tuner(
    objective,
    param_space={"rate": tune.uniform(0, 1)},
    tune_config=tune.TuneConfig(
        num_samples=8, max_concurrent_trials=2, metric="accuracy", mode="max"
    ),
    run_config=tune.RunConfig(storage_path=f"{FILE}.ray"),
).fit()
