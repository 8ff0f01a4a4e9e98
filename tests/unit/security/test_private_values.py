"""Values of secrets and environment variables are in no problem of a job: problems are logged,
stored and published.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.jobs import a_spec
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.problems import InvalidJob

VALUE = 987654321
"""A number that no problem of a job contains for another reason."""
SECRET = f"sesame{VALUE}"
POOL = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1}


def in_extension(**fields: Any) -> dict[str, Any]:
    return {"jobId": "digits_1", **a_spec(), "trainmaster": fields}


def in_vertex(**fields: Any) -> dict[str, Any]:
    pool = {**POOL, "containerSpec": {"imageUri": "gcr.io/p/i", **fields}}
    return {"jobId": "digits_1", "displayName": "x", "jobSpec": {"workerPoolSpecs": [pool]}}


@pytest.mark.parametrize(
    "document",
    [
        in_extension(**{field: {name: value}})
        for field in ("secrets", "env")
        for name, value in (
            ("KEY", VALUE),
            ("KEY", VALUE / 10),
            ("KEY", {"a": SECRET}),
            ("KEY", [SECRET]),
            (f"KEY={SECRET}", "x"),
            (f"KEY {SECRET}", "x"),
            ("TF_CONFIG", SECRET),
        )
    ]
    + [
        in_extension(secrets=SECRET),
        in_extension(env=[SECRET]),
        in_extension(secrets={"KEY": SECRET + " \n"}),
    ]
    + [
        in_vertex(env=[{"name": "KEY", "value": VALUE}]),
        in_vertex(env=[{"name": f"KEY={SECRET}", "value": "x"}]),
        in_vertex(env=[{"name": "KEY", "value": "x", "valu": SECRET}]),
        in_vertex(env=SECRET),
    ],
)
def test_value_is_not_in_the_problem(document: dict[str, Any]) -> None:
    """Each document has a value of a wrong type, or in a wrong place, so that it is refused."""
    with pytest.raises(InvalidJob) as caught:
        accept(document, default_job_id=None)
    about_the_field = [
        problem
        for problem in caught.value.problems
        if "trainmaster" in str(problem) or "env" in str(problem)
    ]
    shown = str(caught.value) + "".join(
        problem.example + problem.field for problem in caught.value.problems
    )
    assert about_the_field
    assert str(VALUE) not in shown.replace(".", "")  # of VALUE / 10
    assert SECRET not in shown
