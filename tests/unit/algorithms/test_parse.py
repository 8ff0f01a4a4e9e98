"""Command lines of the built-in algorithms: values, defaults, notes, and problems that name
argument and value.
"""

from __future__ import annotations

import pytest

from trainmaster.algorithms.arguments.argument import ArgumentNote
from trainmaster.algorithms.arguments.parse import InvalidArgumentsError, parse_arguments
from trainmaster.algorithms.arguments.tables import TABLES, metric_tags

DATA = ("--job-dir", "gs://b/d", "--training_data_path=gs://b/t.csv")
CLASSES = (*DATA, "--model_type=classification")


def problems_of(algorithm: str, *arguments: str) -> str:
    """Return the text of the error for these arguments, with a line for each problem."""
    with pytest.raises(InvalidArgumentsError) as caught:
        parse_arguments(TABLES[algorithm], arguments)
    return str(caught.value)


@pytest.mark.parametrize(
    "tokens",
    [
        ("--max_steps=5", "--use_wide=false"),
        ("--max-steps", "5", "--use_wide", "false"),
        ("--max_steps=1", "--use_wide=no", "--max_steps", "5"),
    ],
)
def test_arguments_are_read_in_every_form_and_the_last_value_wins(tokens: tuple[str, ...]) -> None:
    values = parse_arguments(TABLES["wide_deep_learner"], (*CLASSES, *tokens)).values

    assert (values["max_steps"], values["use_wide"], values["job_dir"]) == (5, False, "gs://b/d")


def test_flag_without_value_is_true_and_leaves_the_next_argument() -> None:
    values = parse_arguments(TABLES["linear_learner"], ("--preprocess", *CLASSES)).values

    assert values["preprocess"] is True
    assert values["batch_size"] == 100


def test_hidden_units_are_read_as_whole_numbers() -> None:
    values = parse_arguments(
        TABLES["wide_deep_learner"], (*CLASSES, "--hidden_units=120,60,60")
    ).values

    assert values["hidden_units"] == (120, 60, 60)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--max_steps=many",), "--max_steps must be a whole number of at least -1, not 'many'"),
        (("--batch_size=0",), "--batch_size must be a whole number of at least 1, not '0'"),
        (("--learning_rate=0",), "--learning_rate must be a number greater than 0, not '0'"),
        (("--learning_rate=inf",), "--learning_rate must be a number greater than 0, not 'inf'"),
        (
            ("--optimizer_type=adagrad",),
            "--optimizer_type must be one of adam, ftrl, sgd, not 'adagrad'",
        ),
        (
            ("--hidden_units=3,0",),
            "--hidden_units must be whole numbers greater than 0, separated by commas, not '3,0'",
        ),
        (("--preprocess=maybe",), "--preprocess must be true or false, not 'maybe'"),
        (
            ("--max_stepz=3",),
            "--max_stepz is not an argument of this algorithm; did you mean --max_steps?",
        ),
        (("positional",), "'positional' is not an argument: each begins with --"),
        (("--max_steps",), "--max_steps needs a value: a whole number of at least -1"),
    ],
)
def test_wrong_argument_is_refused_with_its_value_and_what_is_allowed(
    arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in problems_of("wide_deep_learner", *CLASSES, *arguments)


def test_every_problem_of_a_command_line_is_reported_at_once() -> None:
    text = problems_of("tab_net", "--feature_dim=x", "--batch_size=0")

    assert [line.split()[0] for line in text.splitlines()] == [
        "--feature_dim",
        "--batch_size",
        "--training_data_path",
        "--job_dir",
        "--model_type",
    ]


def test_required_argument_may_be_missing_if_it_is_tuned() -> None:
    tokens = (*DATA, "--preprocess")

    assert (
        parse_arguments(TABLES["linear_learner"], tokens, frozenset({"model_type"})).values[
            "model_type"
        ]
        is None
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--preprocess", "--validation_split=0.3"), "together must be at most 0.4, not 0.5"),
        (
            ("--preprocess", "--test_split=0.5"),
            "--test_split must be a number of at least 0 and at most 0.4",
        ),
    ],
)
def test_splits_that_leave_too_few_rows_are_refused(
    arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in problems_of("linear_learner", *CLASSES, *arguments)


def test_split_without_effect_is_noted() -> None:
    parsed = parse_arguments(TABLES["linear_learner"], (*CLASSES, "--validation_split=0.1"))

    assert parsed.notes == (
        ArgumentNote(
            "validation_split", "0.1", "no effect", "Data are split only with --preprocess."
        ),
    )


def test_split_that_a_file_replaces_does_not_count() -> None:
    tokens = (*CLASSES, "--preprocess", "--validation_data_path=gs://b/v.csv", "--test_split=0.4")

    assert parse_arguments(TABLES["linear_learner"], tokens).values["test_split"] == 0.4


def test_old_parameters_of_xgboost_are_replaced_or_ignored_with_a_note() -> None:
    tokens = (
        *DATA,
        "--objective=reg:linear",
        "--sketch_eps=0.03",
        "--tree_method=gpu_hist",
        "--updater=grow_colmaker,prune",
    )
    parsed = parse_arguments(TABLES["boosted_trees"], tokens)

    assert [(note.name, note.requested, note.replacement) for note in parsed.notes] == [
        ("objective", "reg:linear", "reg:squarederror"),
        ("sketch_eps", "0.03", "no effect"),
        ("tree_method", "gpu_hist", "hist"),
        ("updater", "grow_colmaker,prune", "auto"),
    ]
    assert parsed.values["objective"] == "reg:squarederror"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--objective=multi:softmax",), "--num_class is required for the objective multi:softmax"),
        (
            ("--objective=binary:logistic", "--num_class=2"),
            "--num_class can only be given for multi:softmax",
        ),
        (("--objective=rank:pairwise",), "--objective must be one of"),
        (("--csv_weight=1", "--preprocess"), "--csv_weight can be 1 only without --preprocess"),
        (("--max_depth=0",), "--max_depth can be 0 only if --max_leaves limits the trees"),
        (("--subsample=0",), "--subsample must be a number greater than 0 and at most 1, not '0'"),
    ],
)
def test_xgboost_parameters_that_do_not_fit_are_refused(
    arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in problems_of("boosted_trees", *DATA, *arguments)


def test_distributed_xgboost_has_no_preprocessing() -> None:
    assert "--preprocess is not an argument of this algorithm" in problems_of(
        "xgboost_dist", *DATA, "--preprocess"
    )


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ("--loss_function_type=mse",),
            "--loss_function_type must be one of default, cross_entropy",
        ),
        (
            ("--batch_size=10", "--batch_size_ratio=0.33"),
            "--batch_size_ratio must divide a batch of 10 rows",
        ),
        (
            ("--feature_dim_ratio=0",),
            "--feature_dim_ratio must be a number greater than 0 and at most 0.95",
        ),
    ],
)
def test_tab_net_arguments_that_do_not_fit_are_refused(
    arguments: tuple[str, ...], expected: str
) -> None:
    assert expected in problems_of("tab_net", *CLASSES, *arguments)


@pytest.mark.parametrize("algorithm", TABLES)
def test_every_default_is_an_allowed_value(algorithm: str) -> None:
    for argument in TABLES[algorithm].arguments:
        if argument.default is not None:
            default = argument.default
            text = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
            assert argument.read(text) == default, argument.name


def test_metrics_follow_from_the_arguments() -> None:
    trees = parse_arguments(
        TABLES["boosted_trees"], (*DATA, "--objective=binary:logistic", "--eval_metric=auc")
    ).values
    linear = parse_arguments(TABLES["linear_learner"], (*DATA, "--model_type=regression")).values

    assert metric_tags("boosted_trees", trees) == ("accuracy", "loss", "logloss", "error", "auc")
    assert metric_tags("linear_learner", linear) == ("loss", "rmse", "mae")
