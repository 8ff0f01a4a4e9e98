"""docs/job-format.md says what the code does: every field, every name, and examples that are accepted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from shared.jobspec import accept, parse_document
from shared.jobspec.catalog.machine_types import BUILT_IN_GPUS, GPU_COUNTS, LEGACY_MACHINES
from shared.jobspec.catalog.runtimes import RUNTIMES
from shared.jobspec.catalog.tpu_types import TPU_TYPES, TPU_VMS
from shared.jobspec.fields.environment_variables import RESERVED_VARIABLES
from shared.jobspec.formats.ai_platform import AiPlatformJob, ScaleTier
from shared.jobspec.formats.base_model import WireModel, nested_models
from shared.jobspec.formats.extension import CheckpointSignal, Extension, SpotSpec
from shared.jobspec.reading.document_kinds import VERTEX, VERTEX_TUNING

PAGE: Final = (Path(__file__).parents[3] / "docs" / "job-format.md").read_text(encoding="utf-8")
EXAMPLES: Final = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
UNSAID: Final = {"reservationAffinityType", "key", "values"}
"""Below what is refused as a whole."""


def names_of(model: type[WireModel]) -> set[str]:
    fields = nested_models(model)
    return set(fields).union(*(names_of(inner) for inner in fields.values() if inner))


def expanded(page: str) -> str:
    """`a-{1,2}g` → `a-1g a-2g`, and `-24` after such a name belongs to it."""
    found = []
    for head, choices, tail in re.findall(r"`([a-z0-9-]+)\{([0-9,]+)\}([a-z]*)`", page):
        found += [f"{head}{choice}{tail}" for choice in choices.split(",")]
        found += [f"{head.rstrip('-')}{other}" for other in re.findall(r"`(-[0-9]+)`", page)]
    return " ".join((page, *found))


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_its_examples_are_accepted(example: str) -> None:
    accept(parse_document(example.encode(), "job.yaml"), default_job_id=None)


@pytest.mark.parametrize("model", [AiPlatformJob, VERTEX.model, VERTEX_TUNING.model, Extension, SpotSpec])
def test_it_names_every_field(model: type[WireModel]) -> None:
    missing = {name for name in names_of(model) - UNSAID if not re.search(rf"\b{name}\b", PAGE)}
    assert not missing


@pytest.mark.parametrize(
    "names",
    [ScaleTier, LEGACY_MACHINES, BUILT_IN_GPUS, GPU_COUNTS, TPU_TYPES, TPU_VMS, RUNTIMES, CheckpointSignal],
    ids=["tiers", "legacy machines", "machines with GPUs", "GPUs", "TPU types", "TPU machines", "runtimes", "signals"],
)
def test_it_has_every_name_of_the_tables(names: tuple[str, ...]) -> None:
    said = expanded(PAGE)
    assert not {name for name in names if not re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", said)}


def test_it_names_the_variables_that_a_job_cannot_set() -> None:
    assert all(f"`{name}`" in PAGE for name in RESERVED_VARIABLES)
