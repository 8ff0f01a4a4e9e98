"""From arguments to XGBoost's parameters."""

from __future__ import annotations

from trainmaster.algorithms.arguments.parse import parse_arguments
from trainmaster.algorithms.arguments.tables import TABLES
from trainmaster.algorithms.xgboost_training.parameters import common_metrics, xgboost_parameters

DATA = ("--job-dir=gs://b/d", "--training_data_path=gs://b/t.csv")


def parameters_of(*arguments: str) -> dict[str, object]:
    return xgboost_parameters(parse_arguments(TABLES["boosted_trees"], (*DATA, *arguments)).values)


def test_parameters_of_trees_are_passed_and_those_of_other_boosters_are_not() -> None:
    parameters = parameters_of(
        "--objective=multi:softmax", "--num_class=3", "--eta=0.5", "--base_score=0.5"
    )

    assert (parameters["num_class"], parameters["eta"], parameters["base_score"]) == (3, 0.5, 0.5)
    assert parameters["eval_metric"] == ["mlogloss", "merror"]
    assert not {"rate_drop", "feature_selector", "updater", "sketch_eps", "num_boost_round"} & set(
        parameters
    )


def test_parameters_of_a_linear_booster_have_no_trees() -> None:
    parameters = parameters_of("--booster=gblinear", "--top_k=3")

    assert parameters["top_k"] == 3
    assert not {"max_depth", "tree_method", "subsample"} & set(parameters)


def test_absent_base_score_is_left_to_xgboost() -> None:
    assert "base_score" not in parameters_of()


def test_common_metrics_follow_from_those_of_xgboost() -> None:
    assert common_metrics({"mlogloss": 0.5, "merror": 0.25}) == {
        "mlogloss": 0.5,
        "merror": 0.25,
        "accuracy": 0.75,
        "loss": 0.5,
    }
    assert common_metrics({"rmse": 2.0}) == {"rmse": 2.0, "loss": 4.0}
