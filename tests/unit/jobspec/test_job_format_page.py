"""docs/job-format.md names every field and every name of the tables, and its examples
are accepted.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.support.pages import read_page
from trainmaster.core.machines.tpus import TPU_VMS
from trainmaster.core.model.saving import CheckpointSignal
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.catalog.machine_types import (
    BUILT_IN_GPUS,
    GPU_COUNTS,
    LEGACY_MACHINES,
    TPU_TYPES,
)
from trainmaster.jobspec.catalog.runtimes import RUNTIMES
from trainmaster.jobspec.fields.environment_variables import RESERVED_VARIABLES
from trainmaster.jobspec.formats.ai_platform import AiPlatformJob, ScaleTier
from trainmaster.jobspec.formats.base_model import WireModel, nested_models
from trainmaster.jobspec.formats.extension import Extension
from trainmaster.jobspec.formats.placement import SpotSpec
from trainmaster.jobspec.reading.document_kinds import VERTEX, VERTEX_TUNING
from trainmaster.jobspec.reading.parse_document import parse_document

PAGE: Final = read_page(Path(__file__).parents[3] / "docs" / "job-format.md")
EXAMPLES: Final = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
UNDOCUMENTED: Final = {"reservationAffinityType", "key", "values"}
"""Fields of objects that are refused as a whole."""


def field_names(model: type[WireModel]) -> set[str]:
    fields = nested_models(model)
    return set(fields).union(*(field_names(inner) for inner in fields.values() if inner))


def expanded(page: str) -> str:
    """Expand abbreviated names: `a-{1,2}g` → `a-1g a-2g`, and `-24` after such a name belongs to
    it.
    """
    names = []
    for head, choices, tail in re.findall(r"`([a-z0-9-]+)\{([0-9,]+)\}([a-z]*)`", page):
        names += [f"{head}{choice}{tail}" for choice in choices.split(",")]
        names += [f"{head.rstrip('-')}{other}" for other in re.findall(r"`(-[0-9]+)`", page)]
    return " ".join((page, *names))


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_of_page_is_accepted(example: str) -> None:
    accept(parse_document(example.encode(), "job.yaml"), default_job_id=None)


@pytest.mark.parametrize(
    "model", [AiPlatformJob, VERTEX.model, VERTEX_TUNING.model, Extension, SpotSpec]
)
def test_page_names_every_field(model: type[WireModel]) -> None:
    missing = {
        name for name in field_names(model) - UNDOCUMENTED if not re.search(rf"\b{name}\b", PAGE)
    }
    assert not missing


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(ScaleTier, id="tiers"),
        pytest.param(LEGACY_MACHINES, id="legacy machines"),
        pytest.param(BUILT_IN_GPUS, id="machines with GPUs"),
        pytest.param(GPU_COUNTS, id="GPUs"),
        pytest.param(TPU_TYPES, id="TPU types"),
        pytest.param(TPU_VMS, id="TPU machines"),
        pytest.param(RUNTIMES, id="runtimes"),
        pytest.param(CheckpointSignal, id="signals"),
    ],
)
def test_page_has_every_name_of_the_tables(names: tuple[str, ...]) -> None:
    text = expanded(PAGE)
    missing = {
        name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text)
    }
    assert not missing, "add them to docs/job-format.md"


def test_page_names_reserved_variables() -> None:
    assert all(f"`{name}`" in PAGE for name in RESERVED_VARIABLES)
