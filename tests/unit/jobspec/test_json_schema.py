"""docs/job-schema.json is what the command prints, and has the fields that the models have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
from typer.testing import CliRunner

from trainmaster.cli.main import app
from trainmaster.jobspec.formats.ai_platform import AiPlatformJob, TrainingInput
from trainmaster.jobspec.formats.base_model import WireModel, nested_models
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.formats.vertex import VertexCustomJob, WorkerPoolSpec
from trainmaster.jobspec.formats.vertex_study import StudySpec

PUBLISHED: Final = Path(__file__).parents[3] / "docs" / "job-schema.json"
SCHEMA: Final[dict[str, Any]] = json.loads(PUBLISHED.read_text(encoding="utf-8"))


def test_published_schema_equals_output_of_command() -> None:
    """To update it: trainmaster job-schema > docs/job-schema.json."""
    assert CliRunner().invoke(app, ["job-schema"]).output == PUBLISHED.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "model", [AiPlatformJob, TrainingInput, VertexCustomJob, WorkerPoolSpec, StudySpec, Extension]
)
def test_schema_has_every_field_of_the_model_and_no_other(model: type[WireModel]) -> None:
    definition = SCHEMA["$defs"][model.__name__]
    assert set(definition["properties"]) == set(nested_models(model))
    assert definition["additionalProperties"] is False


def test_schema_of_tuning_job_has_trial_job_spec_instead_of_job_spec() -> None:
    definition = SCHEMA["$defs"]["VertexTuningJob"]
    assert "trialJobSpec" in definition["required"]
    assert "jobSpec" not in definition["properties"]


def test_schema_describes_limits_choices_and_shorthands() -> None:
    definitions = SCHEMA["$defs"]
    scheduling = definitions["Scheduling"]["properties"]
    assert (scheduling["priority"]["minimum"], scheduling["priority"]["maximum"]) == (0, 1000)
    assert scheduling["maxRunningTime"]["type"] == "string"
    assert "BASIC_GPU" in definitions["ScaleTier"]["enum"]
    assert definitions["SpotSpec"]["anyOf"][0]["$ref"] == "#/$defs/SpotUse"


def test_every_field_in_the_schema_has_a_description() -> None:
    fields = [
        (model, name, field)
        for model, definition in SCHEMA["$defs"].items()
        for name, field in definition.get("properties", {}).items()
    ]
    assert not [(model, name) for model, name, field in fields if not field.get("description")]
