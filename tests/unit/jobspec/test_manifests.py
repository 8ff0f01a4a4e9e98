"""Manifests of Kubeflow and JobSet as whole files: the exact job file of each, or its exact
problems. The parts of a manifest have their tests in `manifests/`.

The manifests are written after public examples, whose paths are in their first lines. Python's
`write_golden.py` beside them writes the golden files.
"""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.jobspec.manifests.documents import a_pytorch_job
from trainmaster.core.model.replica_id import TaskType
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.job_document import read_document
from trainmaster.jobspec.manifests.convert import convert
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.parse_document import parse_document

FOLDER: Final = Path(__file__).parent / "manifests"
MANIFESTS: Final = sorted(path.stem for path in FOLDER.glob("*.yaml"))
REFUSED: Final = sorted(path.stem for path in (FOLDER / "refused").glob("*.yaml"))
WITH_REGION: Final = ("trainjob-with-runtime", "jobset-v6e-multislice")


def convert_file(path: Path) -> dict[str, Any]:
    region = None if path.stem in WITH_REGION else "us-central1"
    return dict(read_document(path.read_bytes(), path.name, region))


def job_file_text(name: str) -> str:
    document = json.loads(json.dumps(convert_file(FOLDER / f"{name}.yaml")))
    return yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)


def problems_text(name: str) -> str:
    with pytest.raises(InvalidJob) as raised:
        convert_file(FOLDER / "refused" / f"{name}.yaml")
    return "".join(
        f"{item.field}: {item.problem}\n    {item.example}\n" for item in raised.value.problems
    )


@pytest.mark.parametrize("name", MANIFESTS)
def test_manifest_has_golden_job_file(name: str) -> None:
    assert job_file_text(name) == (FOLDER / f"{name}.job").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", REFUSED)
def test_refused_manifest_has_golden_problems(name: str) -> None:
    assert problems_text(name) == (FOLDER / "refused" / f"{name}.problems").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize("name", MANIFESTS)
def test_printed_job_file_is_accepted_and_lists_the_substitutions_on_the_job(name: str) -> None:
    printed = parse_document((FOLDER / f"{name}.job").read_bytes(), "job.yaml")
    spec = accept({**printed, "jobId": "j"}, default_job_id=None)
    listed = printed["trainmaster"]["convertedFrom"]["substitutions"]  # type: ignore[index]
    shown = [
        {
            "field": item.field,
            "requested": item.requested,
            "replacement": item.replacement,
            "reason": item.reason,
        }
        for item in spec.plan.origin.substitutions
    ]
    assert shown[: len(listed)] == listed
    assert listed


def test_slices_of_jobset_become_replicas_with_hosts_of_the_topology() -> None:
    plan = accept(
        convert_file(FOLDER / "jobset-v6e-multislice.yaml") | {"jobId": "j"}, default_job_id=None
    ).plan
    assert [(group.task_type, group.count, group.hosts) for group in plan.groups] == [
        (TaskType.CHIEF, 1, 4),
        (TaskType.WORKER, 1, 4),
    ]
    assert (plan.where.zones, plan.restarts.restart_job_on_worker_restart) == (
        ("us-east5-b",),
        True,
    )


def test_region_is_required_and_named_by_annotation_option_or_zone() -> None:
    manifest = a_pytorch_job()
    with pytest.raises(InvalidJob) as raised:
        convert(manifest)
    assert [problem.field for problem in raised.value.problems] == [
        "metadata.annotations.trainmaster.region"
    ]
    manifest["metadata"]["annotations"] = {
        "trainmaster": "region: europe-west4\nstallTimeout: 900s"
    }
    extension = convert(manifest)["trainmaster"]
    assert (extension["region"], extension["stallTimeout"]) == ("europe-west4", "900s")
    assert convert(manifest, "us-east1")["trainmaster"]["region"] == "us-east1"


def test_several_documents_are_accepted_only_as_objects_of_kubernetes() -> None:
    with pytest.raises(InvalidJob, match="the file has 2"):
        read_document(b"jobId: a\n---\njobId: b\n", "job.yaml")
    twice = yaml.safe_dump_all([a_pytorch_job(), a_pytorch_job()]).encode()
    with pytest.raises(InvalidJob, match="has 2 objects besides runtimes"):
        read_document(twice, "job.yaml")


def places(value: object, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Return the paths of all values in a document."""
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    return [path, *(place for key, item in items for place in places(item, (*path, key)))]


JUNK: Final[st.SearchStrategy[Any]] = st.sampled_from(
    [None, True, -1, 10**12, 0.5, "", "x", "$(A)", [], [1], [None], {}, {"name": 3}, {"x": {}}]
)


@settings(max_examples=2 * settings().max_examples, deadline=None)
@given(data=st.data())
def test_any_change_of_a_manifest_leads_to_a_job_file_or_to_problems(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(MANIFESTS))
    document: Any = copy.deepcopy(
        dict(parse_document((FOLDER / f"{name}.yaml").read_bytes(), f"{name}.yaml"))
    )
    for _ in range(data.draw(st.integers(1, 3))):
        path = data.draw(st.sampled_from(places(document)[1:]))
        holder = document
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = copy.deepcopy(data.draw(JUNK))
    with contextlib.suppress(InvalidJob):
        accept({**convert(document, "us-central1"), "jobId": "j"}, default_job_id=None)
