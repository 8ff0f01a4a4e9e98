"""The messages of two lives of a program that fails in the same way compare equal, and those of
different faults do not.
"""

from __future__ import annotations

import time

import pytest

from trainmaster.program_errors.varying import without_numbers, without_random_names

LONG = 100_000
"""Characters of a hostile message."""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("loss is -0.123", "loss is 0.456"),
        ("loss is 1.5e-05", "loss is 2"),
        ("loss is nan", "loss is inf"),
        ("tensor([0.1, -0.2, 3.0], grad_fn=<Add>)", "tensor([-7.0, 0.2], grad_fn=<Add>)"),
        ("eigenvalue (1+2j)", "eigenvalue (-1-2j)"),
        ("on cuda:0, port 40123", "on cuda:3, port 51999"),
        ("<Model object at 0x7f01>", "<Model object at 0x7fA2b>"),
    ],
)
def test_messages_that_differ_in_numbers_are_one(first: str, second: str) -> None:
    assert without_numbers(first) == without_numbers(second)
    assert without_random_names(without_numbers(first)) == without_numbers(first)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("no file /tmp/tmpk3_x9a2b/rows.csv", "no file /tmp/tmpzz81kd_f/rows.csv"),
        ("no file /tmp/tmp.aB3xY9kLmN", "no file /tmp/tmp.Qw2ErTyUiO"),
        (
            "run 1b4e28ba-2fa1-11d2-883f-0016d3cca427 is unknown",
            "run 6fa459ea-ee8a-3ca4-894e-db77e160355e is unknown",
        ),
        ("object deadbee1 is bad", "object 91ab34ef77 is bad"),
        ("at 2026-11-30 23:59:59,123 no rows", "at 2026-12-01 00:00:07,001 no rows"),
        ("at 2026-11-30T23:59:59.1+01:00 no rows", "at 2026-12-01T00:00:07.5+01:00 no rows"),
        ("E1130 worker (pid 812) failed", "E1201 worker (pid 90) failed"),
        ("unknown labels {'cat', 'dog'}", "unknown labels {'dog', 'cat'}"),
    ],
)
def test_messages_that_differ_in_random_names_are_one(first: str, second: str) -> None:
    assert without_random_names(first) == without_random_names(second)
    assert without_numbers(first) == without_numbers(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("no column age", "no column name"),
        ("unknown labels {'cat'}", "unknown labels {'cat', 'dog'}"),
        ("cannot open rows.csv", "cannot open labels.csv"),
        ("no file tmp/model", "no file tmp/rows"),
        ("feedback is needed", "feedface is needed"),
    ],
)
def test_messages_of_different_faults_differ(first: str, second: str) -> None:
    assert without_numbers(first) != without_numbers(second)
    assert without_random_names(first) != without_random_names(second)


def test_numbers_stay_where_only_names_go() -> None:
    assert without_random_names("error 0.5 at step 3") == "error 0.5 at step 3"


@pytest.mark.parametrize(
    "unit", ["a", "0", "{", "f-", "#,", "-", "tmp", "0x", "1:00:", "pid ", "e1", ","]
)
def test_hostile_message_costs_linear_time(unit: str) -> None:
    text = unit * (LONG // len(unit)) + "g"
    began = time.process_time()
    without_numbers(text)
    without_random_names(text)
    assert time.process_time() - began < 1
