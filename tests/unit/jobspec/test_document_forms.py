"""The forms in which clients write the same document have the same plan, and the refusal of a
document of no kind names the kinds.

The kind of a document is the API that it was written for. Its *body* is the field that describes
the job, such as `trainingInput` or `jobSpec`. For some kinds, the fields of the body may also stand
at the top level of the document; *wrapped* is the document with the body in its own field.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.jobs import change_plan
from tests.unit.jobspec.bodies import MINIMAL
from tests.unit.jobspec.golden_text import GOLDEN, JOB_FILES
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.formats.base_model import (
    WireModel,
    accepted_names,
    nested_models,
    repeated_fields,
)
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.job_document import job_file_of, read_document
from trainmaster.jobspec.problems import InvalidJob, snake_case
from trainmaster.jobspec.reading.document_kinds import KINDS, detect_kind
from trainmaster.jobspec.reading.parse_document import parse_document


def with_single_values(value: Any, model: type[WireModel] | None) -> Any:
    """Write each list of one as its only item."""
    if not isinstance(value, dict) or model is None:
        return value
    result = {}
    for name, item in value.items():
        canonical = accepted_names(model).get(name, "")
        inner = nested_models(model).get(canonical)
        items = (
            [with_single_values(entry, inner) for entry in item] if isinstance(item, list) else item
        )
        is_single = (
            canonical in repeated_fields(model) and isinstance(item, list) and len(item) == 1
        )
        result[name] = items[0] if is_single else with_single_values(items, inner)
    return result


def in_snake_case(value: Any, model: type[WireModel] | None) -> Any:
    if isinstance(value, list):
        return [in_snake_case(item, model) for item in value]
    if not isinstance(value, dict) or model is None:
        return value
    models, names = nested_models(model), accepted_names(model)
    return {
        snake_case(name): in_snake_case(item, models.get(names.get(name, "")))
        for name, item in value.items()
    }


def meaning(document: dict[str, Any]) -> object:
    spec = accept(document, default_job_id="from_the_file")
    substitutions = spec.plan.origin.substitutions
    notes = {(note.requested, note.replacement, note.reason) for note in substitutions}
    return spec.job_id, spec.labels, change_plan(spec.plan, substitutions=()), notes, spec.tuning


@pytest.mark.parametrize("name", JOB_FILES)
def test_job_file_has_the_same_plan_in_every_form(name: str) -> None:
    data = (GOLDEN / f"{name}.yaml").read_bytes()
    document = job_file_of(parse_document(data, f"{name}.yaml"))
    kind = detect_kind(document)
    whole = kind.wrapped(document)
    forms = {
        "JSON in a message": read_document(json.dumps(document).encode(), "message"),
        "JSON in a .yaml": read_document(json.dumps(document).encode(), "job.yaml"),
        "YAML in a message": read_document(data, "message"),
        "wrapper": whole,
        "single values": with_single_values(whole, kind.model),
        "snake_case": in_snake_case(whole, kind.model),
        "single values in snake_case": in_snake_case(
            with_single_values(whole, kind.model), kind.model
        ),
    }
    if kind.allows_bare_body:
        body_names = (kind.sent_body, snake_case(kind.sent_body))
        (body_name,) = [name for name in body_names if name in whole]
        body: Any = whole[body_name]
        rest: dict[str, Any] = {key: value for key, value in whole.items() if key != body_name}
        forms["top level"] = {**rest, **body}
        forms["single values at the top level"] = {
            **rest,
            **with_single_values(body, kind.body_model),
        }

    expected = meaning(document)
    assert {form: meaning(written) for form, written in forms.items()} == dict.fromkeys(
        forms, expected
    )


def test_single_values_are_stored_as_lists() -> None:
    pool = {"machineSpec": {"machineType": "n1-standard-4"}, "replicaCount": 1}
    package = {
        "executorImageUri": "us-docker.pkg.dev/vertex-ai/training/tf-cpu.2-17.py310:latest",
        "args": "--x",
    }
    package |= {"packageUris": "gs://my-bucket/t-0.1.tar.gz", "pythonModule": "t"}
    document = {
        "workerPoolSpecs": {**pool, "pythonPackageSpec": package},
        "trainmaster": {"region": "us-central1"},
    }
    stored = json.loads(accept(document, default_job_id="a").spec_json)
    assert stored["workerPoolSpecs"][0]["pythonPackageSpec"]["packageUris"] == [
        "gs://my-bucket/t-0.1.tar.gz"
    ]
    plan = accept(stored, default_job_id="a").plan
    assert plan.program_of(plan.primary.task_type).args == ("--x",)


CUSTOM_JOB = "custom job of Vertex AI"


def problems_of(document: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(InvalidJob) as caught:
        accept(document, default_job_id="a")
    return {
        problem.field: f"{problem.problem} — {problem.example}" for problem in caught.value.problems
    }


@pytest.mark.parametrize("document", [{}, {"labels": {"a": "b"}}, {"labels": {}, "frobnicate": 1}])
def test_document_of_no_kind_is_told_what_it_has_and_which_kinds_exist(
    document: dict[str, Any],
) -> None:
    problem = problems_of(document)["trainingInput"]
    assert f"the document has {', '.join(document) or 'no field'}" in problem
    for kind in KINDS:
        assert f"{' or '.join(kind.identified_by)}: {kind.title}" in problem
    assert "apiVersion and kind: manifest of Kubeflow or JobSet" in problem


@pytest.mark.parametrize(
    ("document", "field", "words"),
    [
        (
            {"trainingInput": MINIMAL, "jobSpec": {}},
            "jobSpec",
            (CUSTOM_JOB, "job of AI Platform", "trainingInput"),
        ),
        (
            {"trainingInput": MINIMAL, "displayName": "d"},
            "displayName",
            (CUSTOM_JOB, "job of AI Platform"),
        ),
        (
            {"jobSpec": {}, "maxTrialCount": 3},
            "maxTrialCount",
            ("tuning job of Vertex AI", CUSTOM_JOB, "jobSpec"),
        ),
        (
            {"studySpec": {}, "trainingTaskDefinition": "x"},
            "trainingTaskDefinition",
            ("pipeline", "studySpec"),
        ),
        (
            {"studySpec": {}, "workerPoolSpecs": []},
            "trialJobSpec",
            ("workerPoolSpecs belongs under it",),
        ),
        (
            {"studySpec": {}, "trialJobSpec": {}, "network": "n"},
            "network",
            ("belongs under trialJobSpec",),
        ),
        ({"kind": "TFJob", "spec": {}}, "kind", ("marks a manifest of Kubeflow or JobSet",)),
        (
            {"displayName": "d", "workerPoolSpec": []},
            "workerPoolSpec",
            ("did you mean workerPoolSpecs?",),
        ),
        (
            {"trainingInput": {**MINIMAL, "env": {"A": "1"}}},
            "trainingInput.env",
            ("it belongs under trainmaster",),
        ),
        (
            {"trainingInput": {**MINIMAL, "stall_timeout": 1}},
            "trainingInput.stall_timeout",
            ("under trainmaster",),
        ),
        ({"trainingInput": MINIMAL, "spot": "all"}, "spot", ("it belongs under trainmaster",)),
        ({"jobSpec": {"gcs": True}}, "jobSpec.gcs", ("it belongs under trainmaster",)),
        (
            {"trainingInput": {**MINIMAL, "labels": {"a": "b"}}},
            "trainingInput.labels",
            ("it belongs next to trainingInput",),
        ),
        (
            {
                "trainingInput": {
                    **MINIMAL,
                    "scaleTier": "CUSTOM",
                    "masterType": "n1-standard-4",
                    "masterConfig": {"acceleratorConfig": {"type": "NVIDIA_TESLA_L4"}},
                }
            },
            "trainingInput.masterConfig.acceleratorConfig.type",
            ("did you mean NVIDIA_L4?",),
        ),
    ],
)
def test_contradictory_document_names_both_kinds_and_the_fix(
    document: dict[str, Any], field: str, words: tuple[str, ...]
) -> None:
    problem = problems_of(document)[field]
    for word in words:
        assert word in problem


BLOCKS = sorted(name for name, model in nested_models(Extension).items() if model is not None)


@pytest.mark.parametrize("name", BLOCKS)
def test_block_of_trainmaster_inside_itself_is_refused(name: str) -> None:
    problems = problems_of({"trainingInput": MINIMAL, "trainmaster": {name: {name: {}}}})
    assert f"trainmaster.{name}.{name}" in problems
