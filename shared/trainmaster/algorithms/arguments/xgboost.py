"""Arguments of `boosted_trees` and `xgboost_dist`: the parameters of XGBoost 0.81, which XGBoost
3.2 reads.

Source of names, defaults and ranges: XGBoost's own page of parameters, release 0.81.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from ..arguments.argument import (
    Argument,
    ArgumentProblem,
    ArgumentTable,
    Finding,
    Kind,
    Source,
    Values,
    argument_maker,
)
from ..arguments.common import DATA, JOB_DIR, TABULAR, check_splits

CLASSIFICATION: Final = (
    "binary:logistic",
    "binary:logitraw",
    "binary:hinge",
    "multi:softmax",
    "multi:softprob",
)
_REGRESSION: Final = (
    "reg:squarederror",
    "reg:squaredlogerror",
    "reg:absoluteerror",
    "reg:pseudohubererror",
    "reg:logistic",
    "reg:gamma",
    "reg:tweedie",
    "count:poisson",
    "survival:cox",
)
_RENAMED: Final = "XGBoost has renamed it."
_DEVICE: Final = "XGBoost selects the device of the VM."
_HISTOGRAMS: Final = "XGBoost builds histograms with max_bin bins instead of sketches."
_number: Final = argument_maker(Kind.NUMBER, Source.SERVICE)
_integer: Final = argument_maker(Kind.INTEGER, Source.SERVICE)
_text: Final = argument_maker(Kind.TEXT, Source.SERVICE)
_SELECTORS: Final = ("cyclic", "shuffle", "random", "greedy", "thrifty")

PARAMETERS: Final = (
    _text(
        "objective",
        "reg:squarederror",
        "What is learnt.",
        choices=(*_REGRESSION, *CLASSIFICATION),
        replaced=(
            ("reg:linear", "reg:squarederror", _RENAMED),
            ("gpu:reg:linear", "reg:squarederror", _DEVICE),
            ("gpu:reg:logistic", "reg:logistic", _DEVICE),
            ("gpu:binary:logistic", "binary:logistic", _DEVICE),
            ("gpu:binary:logitraw", "binary:logitraw", _DEVICE),
        ),
    ),
    _integer(
        "num_class",
        None,
        "Number of classes. Required for multi:softmax and multi:softprob.",
        low=2,
    ),
    _text("booster", "gbtree", "Kind of model.", choices=("gbtree", "gblinear", "dart")),
    _integer("num_boost_round", 10, "Number of boosting rounds.", low=1),
    _integer(
        "max_depth",
        6,
        "Largest depth of a tree; 0: no limit, only with grow_policy lossguide.",
        low=0,
    ),
    _number("eta", 0.3, "Learning rate.", low=0, high=1),
    _number("gamma", 0.0, "Smallest reduction of the loss for a split.", low=0),
    _number("min_child_weight", 1.0, "Smallest sum of instance weights in a leaf.", low=0),
    _number("max_delta_step", 0.0, "Largest change of a leaf; 0: no limit.", low=0),
    _number("subsample", 1.0, "Share of the rows per round.", low=0, high=1, is_open=True),
    _number("colsample_bytree", 1.0, "Share of the columns per tree.", low=0, high=1, is_open=True),
    _number(
        "colsample_bylevel", 1.0, "Share of the columns per level.", low=0, high=1, is_open=True
    ),
    _number("lambda", 1.0, "L2 regularization.", low=0),
    _number("alpha", 0.0, "L1 regularization.", low=0),
    _text(
        "tree_method",
        "auto",
        "How trees are built; auto is hist since XGBoost 2.",
        choices=("auto", "exact", "approx", "hist"),
        replaced=(("gpu_exact", "hist", _DEVICE), ("gpu_hist", "hist", _DEVICE)),
    ),
    Argument("sketch_eps", Kind.NUMBER, "Has no effect.", ignored=_HISTOGRAMS),
    Argument("predictor", Kind.TEXT, "Has no effect.", ignored=_DEVICE),
    _number("scale_pos_weight", 1.0, "Weight of the positive class.", low=0, is_open=True),
    Argument(
        "updater",
        Kind.TEXT,
        "Tree updaters; auto: those of tree_method.",
        "auto",
        replaced=(
            (
                "grow_colmaker,prune",
                "auto",
                "These were the updaters of the service's default tree_method.",
            ),
        ),
    ),
    _integer("refresh_leaf", 1, "Whether the updater refresh changes leaves.", low=0, high=1),
    _text("process_type", "default", "Boosting process.", choices=("default",)),
    _text(
        "grow_policy", "depthwise", "Where new nodes are added.", choices=("depthwise", "lossguide")
    ),
    _integer("max_leaves", 0, "Largest number of leaves; 0: no limit.", low=0),
    _integer("max_bin", 256, "Number of bins per column.", low=2),
    Argument(
        "base_score",
        Kind.NUMBER,
        "First prediction; default: estimated from the targets (formerly 0.5).",
    ),
    _integer(
        "csv_weight",
        0,
        "1: the second column of the training data is the weight of the row.",
        low=0,
        high=1,
    ),
    Argument("eval_metric", Kind.TEXT, "Further metrics of XGBoost, separated by commas."),
    _integer("seed", 0, "Seed of all random numbers.", low=0),
    _integer("nthread", None, "Threads; default: the cores of the VM.", low=1),
    _number("tweedie_variance_power", 1.5, "For reg:tweedie.", low=1, high=2, is_open=True),
    _text(
        "sample_type",
        "uniform",
        "For dart: how trees are selected.",
        choices=("uniform", "weighted"),
    ),
    _text("normalize_type", "tree", "For dart: weight of new trees.", choices=("tree", "forest")),
    _number("rate_drop", 0.0, "For dart: share of the trees that are dropped.", low=0, high=1),
    _integer("one_drop", 0, "For dart: 1: at least one tree is dropped.", low=0, high=1),
    _number("skip_drop", 0.0, "For dart: probability that nothing is dropped.", low=0, high=1),
    _text("feature_selector", "cyclic", "For gblinear: order of the columns.", choices=_SELECTORS),
    _integer("top_k", 0, "For gblinear: number of columns; 0: all.", low=0),
)
_own: Final = argument_maker(Kind.NUMBER, Source.OURS)
_CHECKPOINT_SECS: Final = _own(
    "checkpoint_secs",
    60.0,
    "Seconds between two checkpoints, from which a restarted job continues.",
    low=0,
)
_WAIT_MINUTES: Final = _own(
    "wait_minutes", 30.0, "How long a replica waits for lost replicas.", low=0, is_open=True
)


def xgboost_metrics(values: Values) -> list[str]:
    """Return XGBoost's metrics of each evaluation: the loss, the error of a classification, and the
    requested ones.
    """
    objective = str(values["objective"])
    if objective.startswith("multi:"):
        own = ["mlogloss", "merror"]
    elif objective == "binary:hinge":
        own = ["error"]
    elif objective in CLASSIFICATION:
        own = ["logloss", "error"]
    else:
        own = ["cox-nloglik"] if objective == "survival:cox" else ["rmse"]
    requested = [name.strip() for name in str(values["eval_metric"] or "").split(",")]
    return list(dict.fromkeys((*own, *filter(None, requested))))


def common_names(metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the names of metrics that all algorithms share and that follow from these."""
    names = []
    if any(name in metrics for name in ("error", "merror")):
        names.append("accuracy")
    if any(name in metrics for name in ("logloss", "mlogloss", "rmse")):
        names.append("loss")
    return tuple(names)


def check_classes(values: Values, given: frozenset[str]) -> Iterator[Finding]:
    """Check that multi-class objectives have the number of classes, and other objectives do not."""
    objective = str(values["objective"])
    if objective.startswith("multi:") and values["num_class"] is None:
        yield ArgumentProblem(
            "num_class", f"is required for the objective {objective}", example="--num_class=3"
        )
    if not objective.startswith("multi:") and "num_class" in given:
        problem = (
            "can only be given for multi:softmax and multi:softprob, and the objective is"
            f" {objective}"
        )
        yield ArgumentProblem("num_class", problem, example="leave it out")


def check_depth(values: Values, _given: frozenset[str]) -> Iterator[Finding]:
    """Check that trees have a limit."""
    if values["max_depth"] == 0 and values["max_leaves"] == 0:
        yield ArgumentProblem(
            "max_depth", "can be 0 only if --max_leaves limits the trees", example="--max_depth=6"
        )


def check_weights(values: Values, _given: frozenset[str]) -> Iterator[Finding]:
    """Check that weights are not preprocessed: preprocessing treats every column except the first
    as a feature.
    """
    if values["csv_weight"] == 1 and values["preprocess"]:
        problem = "can be 1 only without --preprocess, which would treat the weights as a feature"
        yield ArgumentProblem("csv_weight", problem, example="--csv_weight=0")


BOOSTED_TREES: Final = ArgumentTable(
    (*TABULAR, *PARAMETERS, _CHECKPOINT_SECS),
    (check_splits, check_classes, check_depth, check_weights),
)
XGBOOST_DIST: Final = ArgumentTable(
    (*DATA, JOB_DIR, *PARAMETERS, _CHECKPOINT_SECS, _WAIT_MINUTES), (check_classes, check_depth)
)
