"""From arguments to the parameters of XGBoost 3.2."""

from __future__ import annotations

from typing import Any, Final

from ..arguments.argument import Values
from ..arguments.xgboost import CLASSIFICATION, PARAMETERS, xgboost_metrics

_NO_PARAMETERS: Final = ("num_boost_round", "csv_weight", "eval_metric", "sketch_eps", "predictor")
"""Arguments that are not passed on as parameters: other code reads them, or XGBoost no longer has
them.
"""
_OF_TREES: Final = (
    "max_depth",
    "gamma",
    "min_child_weight",
    "max_delta_step",
    "subsample",
    "colsample_bytree",
    "colsample_bylevel",
    "tree_method",
    "refresh_leaf",
    "process_type",
    "grow_policy",
    "max_leaves",
    "max_bin",
)
"""Parameters that linear models (`gblinear`) do not have."""
_OF_DART: Final = ("sample_type", "normalize_type", "rate_drop", "one_drop", "skip_drop")
"""Parameters of `dart`, trees with dropout."""


def is_classification(values: Values) -> bool:
    """Return whether the objective learns classes, not numbers."""
    return values["objective"] in CLASSIFICATION


def xgboost_parameters(values: Values) -> dict[str, Any]:
    """Return the parameters of the selected booster that have a value.

    XGBoost warns about those of other boosters.
    """
    booster = values["booster"]
    objective = values["objective"]
    parameters = {argument.name: values[argument.name] for argument in PARAMETERS}
    unused = set(_NO_PARAMETERS)
    if booster != "dart":
        unused |= set(_OF_DART)
    if booster == "gblinear":
        unused |= set(_OF_TREES)
    else:
        unused |= {"feature_selector", "top_k"}
    if objective != "reg:tweedie":
        unused.add("tweedie_variance_power")
    is_binary = objective in CLASSIFICATION and not str(objective).startswith("multi:")
    if not is_binary:
        unused.add("scale_pos_weight")
    if parameters["updater"] == "auto":
        unused.add("updater")
    if parameters["tree_method"] == "exact":
        unused |= {"max_bin", "grow_policy", "max_leaves"}
    kept = {
        name: value
        for name, value in parameters.items()
        if value is not None and name not in unused
    }
    return {**kept, "eval_metric": xgboost_metrics(values)}


def common_metrics(evaluation: dict[str, float]) -> dict[str, float]:
    """Add `accuracy` and `loss`, the names that all algorithms share, to XGBoost's own metrics."""
    named = dict(evaluation)
    for error in ("merror", "error"):
        if error in evaluation:
            named["accuracy"] = 1 - evaluation[error]
    for loss in ("mlogloss", "logloss"):
        if loss in evaluation:
            named["loss"] = evaluation[loss]
    if "rmse" in evaluation:
        named["loss"] = evaluation["rmse"] ** 2
    return named
