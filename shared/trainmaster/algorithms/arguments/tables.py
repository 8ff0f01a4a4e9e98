"""The table of arguments of each algorithm, and the metrics that it reports to a tuning job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..arguments.argument import ArgumentTable, Values
from ..arguments.keras import LINEAR_LEARNER, WIDE_DEEP_LEARNER
from ..arguments.tab_net import TAB_NET
from ..arguments.xgboost import BOOSTED_TREES, XGBOOST_DIST, common_names, xgboost_metrics

TABLES: Final[Mapping[str, ArgumentTable]] = {
    "boosted_trees": BOOSTED_TREES,
    "xgboost_dist": XGBOOST_DIST,
    "linear_learner": LINEAR_LEARNER,
    "wide_deep_learner": WIDE_DEEP_LEARNER,
    "tab_net": TAB_NET,
}
CLASSIFICATION_METRICS: Final = ("accuracy", "loss", "auc")
"""`auc` only for two classes."""
REGRESSION_METRICS: Final = ("loss", "rmse", "mae")


def metric_tags(algorithm: str, values: Values) -> tuple[str, ...]:
    """Return the tags of the metrics that the algorithm reports with these arguments."""
    if TABLES[algorithm] in (BOOSTED_TREES, XGBOOST_DIST):
        metrics = xgboost_metrics(values)
        return tuple(dict.fromkeys((*common_names(metrics), *metrics)))
    return (
        CLASSIFICATION_METRICS if values["model_type"] == "classification" else REGRESSION_METRICS
    )
