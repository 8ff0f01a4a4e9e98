"""The job files, and the parts of job files, that pages show are accepted.

tests/unit/jobspec/test_job_format_page.py has those of docs/job-format.md, test_tutorial.py those
of pages with commands.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import pytest

from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.reading.parse_document import parse_document

DOCS: Final = Path(__file__).parents[3] / "docs"
ONE_VM: Final[dict[str, Any]] = {
    "region": "us-central1",
    "scaleTier": "CUSTOM",
    "masterType": "n1-standard-4",
    "masterConfig": {"imageUri": "us-docker.pkg.dev/my-project/training/trainer:1"},
}
FOUR_VMS: Final = {**ONE_VM, "workerType": "n1-standard-4", "workerCount": 3}
GPU: Final = {**ONE_VM, "masterType": "a2-highgpu-1g"}
SLICE: Final = {
    **ONE_VM,
    "masterType": "cloud_tpu",
    "masterConfig": {
        **ONE_VM["masterConfig"],
        "acceleratorConfig": {"type": "TPU_V5_LITEPOD", "count": "16"},
    },
}
BASES: Final[dict[str, list[dict[str, Any]]]] = {
    "algorithms.md": [{}],
    "capacity.md": [GPU, SLICE],
    "cost.md": [ONE_VM],
    "elastic.md": [FOUR_VMS],
    "exit-policies.md": [FOUR_VMS],
    "migrating.md": [{}, ONE_VM],
}
"""Page → the `trainingInput` that each of its examples needs besides its own fields."""


def examples(name: str) -> list[str]:
    page = (DOCS / name).read_text(encoding="utf-8")
    return re.findall(r"(?ms)^```yaml\n(.*?)^```$", page)


@pytest.mark.parametrize("name", BASES)
def test_examples_of_a_page_are_accepted(name: str) -> None:
    for text, base in zip(examples(name), BASES[name], strict=True):
        example = re.sub(r"PROJECT/REPOSITORY|BUCKET", lambda name: name[0].lower(), text)
        document: dict[str, Any] = dict(parse_document(example.encode(), "job.yaml"))
        training = {**base, **document.get("trainingInput", {})}
        accept({"jobId": "digits_1", **document, "trainingInput": training}, default_job_id=None)


def test_no_page_with_an_example_is_left_out() -> None:
    elsewhere = {"job-format.md", "tutorial.md", "from-torchrun.md"}
    manifests = {"kubeflow.md"}  # an excerpt: the rest of the manifest is left out
    shown = {page.name for page in DOCS.glob("*.md") if examples(page.name)}
    assert shown == BASES.keys() | elsewhere | manifests
