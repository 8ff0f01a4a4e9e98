"""The exact bulk-insert requests for job documents. The emulator's checks must accept them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from google.cloud import compute_v1

from tests.integration.compute.request_cases import (
    GOLDEN,
    MINIMAL,
    THEMES,
    Case,
    differences,
    minimal_request,
)
from tests.unit.jobspec.machine_requests import machine_requests
from trainmaster.core.model.job import Label
from trainmaster.core.model.label_rules import LABELS_MAX
from trainmaster.jobspec.catalog.regions import REGION_ZONES
from trainmaster.jobspec.problems import InvalidJob
from trainmaster_emulators.compute.resource_policies import PolicyStore
from trainmaster_emulators.machines.catalog import Catalog, Links
from trainmaster_emulators.machines.operations import OperationStore
from trainmaster_emulators.machines.properties import Properties, parse_properties

ZONE = "us-central1-a"
OWN_LABELS = 5
"""Number of labels of each VM that the service needs itself, such as `trainmaster-job`."""
CASES = [(theme, name) for theme, cases in THEMES.items() for name in cases]


def uses_only_vms(document: Mapping[str, object]) -> bool:
    """Return whether the job is valid and uses no TPU slices."""
    try:
        return all(group.tpu is None for group in Case(document).job().plan.groups)
    except InvalidJob:
        return False


MACHINES = {
    name: document for name, document in machine_requests().items() if uses_only_vms(document)
}


def golden(name: str) -> dict[str, object]:
    content: dict[str, object] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return content


def parse_by_emulator(request: compute_v1.BulkInsertInstanceResource) -> Properties:
    """Return the properties as the emulator parses them. Raises the emulator's ApiError."""
    json_text = compute_v1.BulkInsertInstanceResource.to_json(
        request, always_print_fields_with_no_presence=False
    )
    body = json.loads(json_text)["instanceProperties"]
    catalog = Catalog(Links("http://localhost/compute/v1", "p"))
    policies = PolicyStore(catalog, OperationStore(catalog.links), list)
    for policy in body.get("resourcePolicies", ()):
        policies.insert(
            "us-central1",
            {"name": policy, "groupPlacementPolicy": {"collocation": "COLLOCATED"}},
            None,
        )
    properties = parse_properties(body, ZONE, catalog, "default@p", 30)
    policies.check(ZONE, properties)
    return properties


def test_minimal_job_makes_the_golden_request() -> None:
    assert minimal_request() == golden("minimal")


@pytest.mark.parametrize(("theme", "name"), CASES)
def test_job_makes_the_golden_requests_that_compute_accepts(theme: str, name: str) -> None:
    case = THEMES[theme][name]
    assert differences(case) == golden(theme)[name]
    actions = [
        parse_by_emulator(request).scheduling.termination_action for request in case.requests()
    ]
    assert actions == ["DELETE"] * len(case.requests()), "every VM has a run limit that deletes it"


def test_each_golden_request_has_a_case() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == {"minimal", *THEMES}
    assert all(list(golden(theme)) == list(cases) for theme, cases in THEMES.items())


@pytest.mark.parametrize("name", MACHINES)
def test_request_for_each_supported_machine_is_accepted(name: str) -> None:
    """The emulator offers every machine type in every region, which is a simplification."""
    for request in Case(MACHINES[name]).requests():
        parse_by_emulator(request)


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        pytest.param(
            [("team", "vision"), ("Team", "x"), ("9", "x"), ("a", "X"), ("ok", "")],
            {"team": "vision", "ok": ""},
            id="invalid labels are omitted",
        ),
        pytest.param(
            [("trainmaster-job", "another"), ("trainmaster-x", "y")],
            {},
            id="reserved labels are omitted",
        ),
        pytest.param(
            [(f"l{n:02}", "x") for n in range(LABELS_MAX)],
            {f"l{n:02}": "x" for n in range(LABELS_MAX - OWN_LABELS)},
            id="surplus labels are omitted",
        ),
    ],
)
def test_vms_have_the_labels_of_the_job_that_are_valid_for_vms(
    labels: list[tuple[str, str]], shown: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = replace(MINIMAL.job(), labels=tuple(Label(key, value) for key, value in labels))
    monkeypatch.setattr(Case, "job", lambda _: job)
    (request,) = MINIMAL.requests()
    labels_of_vm = parse_by_emulator(request).labels
    assert {
        key: value for key, value in labels_of_vm.items() if not key.startswith("trainmaster-")
    } == shown
    assert request.instance_properties.labels["trainmaster-job"] == "digits_1"


def test_zones_of_the_emulator_exist() -> None:
    zones = set(Catalog(Links("http://localhost/compute/v1", "p")).zone_names())
    assert zones <= {zone for region in REGION_ZONES.values() for zone in region}
