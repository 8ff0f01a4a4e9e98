"""Files of other tools, with any values in their fields: each is refused by a `ForeignFile`.

This error is an answer to the user: it gives the job file that the task of SkyPilot or dstack
means. No value may lead to another error, such as one of a type that the reading did not expect.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainmaster.jobspec.foreign.answer import ForeignFile
from trainmaster.jobspec.job_document import job_file_of, read_document
from trainmaster.jobspec.problems import InvalidJob

WORDS = st.sampled_from(
    [
        "A100:8",
        "8+",
        "..",
        "gcp/",
        "gs://",
        "pip install",
        "$X",
        "'",
        "x86:",
        "6h",
        "docker:",
        "a=1",
    ]
)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | WORDS | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=3),
    max_leaves=8,
)
RESOURCES = (
    *("accelerators", "cpus", "memory", "infra", "region", "zone", "any_of", "ordered", "labels"),
    *("disk_size", "image_id", "instance_type", "use_spot", "gpu", "cpu", "disk"),
)
FIELDS = (
    *("name", "num_nodes", "workdir", "file_mounts", "envs", "secrets", "setup", "nodes", "env"),
    *("image", "regions", "availability_zones", "instance_types", "backends", "max_duration"),
    *("working_dir", "spot_policy"),
)


@settings(max_examples=100, deadline=None)
@given(
    head=st.sampled_from(
        [{"run": "python train.py", "envs": {}}, {"type": "task", "commands": []}]
    ),
    fields=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=5),
    resources=st.dictionaries(st.sampled_from(RESOURCES), VALUES, max_size=4) | VALUES,
)
def test_task_with_any_values_gets_an_answer(
    head: dict[str, Any], fields: dict[str, Any], resources: object
) -> None:
    with pytest.raises(ForeignFile):
        job_file_of({**head, "envs": {}, **fields, **head, "resources": resources})


@pytest.mark.parametrize(
    "text", ["run: |\n  'unclosed\nsetup: x\n", "type: task\ncommands: [null]"]
)
def test_commands_of_any_form_get_an_answer(text: str) -> None:
    with pytest.raises(InvalidJob):
        read_document(text.encode(), "task.yaml")
