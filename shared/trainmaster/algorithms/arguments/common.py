"""Arguments of all algorithms for tabular data, and the checks of their combinations.

The `source` of an argument is the origin of its default: AI Platform Training (the service), or
Trainmaster.

Sources: the pages of AI Platform Training on its built-in algorithms, and the arguments of jobs
that ran there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from ..arguments.argument import (
    Argument,
    ArgumentNote,
    ArgumentProblem,
    Finding,
    Kind,
    Source,
    Values,
    number_in,
)

SPLIT_SUM_MAX: Final = 0.4
"""Largest sum of the shares for validation and test. Source: the pages of AI Platform Training."""

ROUNDING: Final = 1e-9
"""Tolerance for a sum of two shares, larger than any error of binary rounding."""
_OF_VALIDATION: Final = (
    "Share of the rows for evaluation. Only with preprocess and without validation_data_path."
)
_OF_TEST: Final = "Share of the rows for the test. Only with preprocess and without test_data_path."
JOB_DIR: Final = Argument(
    "job_dir", Kind.TEXT, "Directory of all output; the job's jobDir.", is_required=True
)
DATA: Final = (
    Argument(
        "training_data_path",
        Kind.PATH,
        "CSV file, no header, target in the first column.",
        is_required=True,
    ),
    Argument(
        "validation_data_path",
        Kind.PATH,
        "CSV file of the same form, for evaluation during the training.",
    ),
    Argument(
        "test_data_path", Kind.PATH, "CSV file of the same form, for one evaluation at the end."
    ),
)
"""Files of the data: arguments of all algorithms for tables."""
TABULAR: Final = (
    *DATA,
    JOB_DIR,
    Argument(
        "preprocess",
        Kind.FLAG,
        "Split the data, fill missing values, encode categories.",
        default=False,
        source=Source.SERVICE,
    ),
    Argument(
        "validation_split",
        Kind.NUMBER,
        _OF_VALIDATION,
        default=0.2,
        source=Source.SERVICE,
        low=0,
        high=SPLIT_SUM_MAX,
    ),
    Argument(
        "test_split",
        Kind.NUMBER,
        _OF_TEST,
        default=0.2,
        source=Source.OURS,
        low=0,
        high=SPLIT_SUM_MAX,
    ),
)
"""Arguments of all algorithms that can prepare tables (`preprocess`)."""


def check_splits(values: Values, given: frozenset[str]) -> Iterator[Finding]:
    """Check the shares for validation and test, and note those that have no effect.

    A share has an effect only if the data are split, and no file of its own has these rows.
    """
    effective = dict.fromkeys(("validation_split", "test_split"), 0.0)
    for name, path in (
        ("validation_split", "validation_data_path"),
        ("test_split", "test_data_path"),
    ):
        reason = ""
        if not values["preprocess"]:
            reason = "Data are split only with --preprocess."
        elif values[path] is not None:
            reason = f"--{path} names the rows."
        if not reason:
            effective[name] = number_in(values, name)
        elif name in given:
            yield ArgumentNote(name, str(values[name]), "no effect", reason)
    total = sum(effective.values())
    if total > SPLIT_SUM_MAX + ROUNDING:
        problem = f"and --test_split together must be at most {SPLIT_SUM_MAX}, not {total:g}"
        yield ArgumentProblem(
            "validation_split", problem, example="--validation_split=0.2 --test_split=0.2"
        )
