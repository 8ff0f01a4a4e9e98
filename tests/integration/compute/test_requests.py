"""What Compute Engine is asked for: job document in, exact request out, in which the emulator finds nothing wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pytest
from google.cloud import compute_v1

from emulators.compute.catalog import Catalog, Links
from emulators.compute.operations import OperationStore
from emulators.compute.properties import Properties, parse_properties
from emulators.compute.resource_policies import PolicyStore
from shared.core.model.job import Label
from shared.gcp.vm_labels import LABELS_MAX
from shared.jobspec import InvalidJob
from shared.jobspec.catalog.regions import REGION_ZONES
from tests.integration.compute.request_cases import GOLDEN, PLAINEST, THEMES, Case, differences, plainest
from tests.unit.jobspec.machine_requests import machine_requests

ZONE = "us-central1-a"
CASES = [(theme, name) for theme, cases in THEMES.items() for name in cases]


def is_of_vms(document: Mapping[str, object]) -> bool:
    """A right job, and not on slices."""
    try:
        return all(group.tpu is None for group in Case(document).job().plan.groups)
    except InvalidJob:
        return False


MACHINES = {name: document for name, document in machine_requests().items() if is_of_vms(document)}


def golden(name: str) -> dict[str, object]:
    found: dict[str, object] = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    return found


def checked(request: compute_v1.BulkInsertInstanceResource, zone: str = ZONE) -> Properties:
    """As the emulator understands it; raises what it would answer."""
    sent = compute_v1.BulkInsertInstanceResource.to_json(request, always_print_fields_with_no_presence=False)
    body = json.loads(sent)["instanceProperties"]
    catalog = Catalog(Links("http://localhost/compute/v1", "p"))
    policies = PolicyStore(catalog, OperationStore(catalog.links), list)
    for policy in body.get("resourcePolicies", ()):
        policies.insert("us-central1", {"name": policy, "groupPlacementPolicy": {"collocation": "COLLOCATED"}}, None)
    properties = parse_properties(body, zone, catalog, "default@p", 30)
    policies.check(zone, properties)
    return properties


def test_the_plainest_job_asks_for_exactly_this() -> None:
    assert plainest() == golden("plainest")


@pytest.mark.parametrize(("theme", "name"), CASES)
def test_a_job_asks_for_exactly_this_and_compute_takes_it(theme: str, name: str) -> None:
    case = THEMES[theme][name]
    assert differences(case) == golden(theme)[name]
    assert [checked(request).scheduling.termination_action for request in case.requests()] == ["DELETE"] * len(
        case.requests()
    ), "every VM has its run_limit_timer"


def test_no_golden_request_is_nobodys() -> None:
    assert {path.stem for path in GOLDEN.glob("*.json")} == {"plainest", *THEMES}
    assert all(list(golden(theme)) == list(cases) for theme, cases in THEMES.items())


@pytest.mark.parametrize("name", MACHINES)
def test_every_machine_there_is_to_ask_for_is_asked_for_in_a_way_that_compute_takes(name: str) -> None:
    """In a region of the emulator: that all are sold everywhere is its simplification."""
    for request in Case(MACHINES[name]).requests():
        checked(request)


@pytest.mark.parametrize(
    ("labels", "shown"),
    [
        ([("team", "vision"), ("Team", "x"), ("9", "x"), ("a", "X"), ("ok", "")], {"team": "vision", "ok": ""}),
        ([("trainmaster-job", "another"), ("trainmaster-x", "y")], {}),
        ([(f"l{nth:02}", "x") for nth in range(LABELS_MAX)], {f"l{nth:02}": "x" for nth in range(LABELS_MAX - 4)}),
    ],
    ids=["illegal ones are left out", "ours are ours", "as many as there is room for"],
)
def test_the_jobs_own_labels_are_on_its_vms_where_they_can_be(
    labels: list[tuple[str, str]], shown: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = replace(PLAINEST.job(), labels=tuple(Label(key, value) for key, value in labels))
    monkeypatch.setattr(Case, "job", lambda _: job)
    (request,) = PLAINEST.requests()
    own = {key: value for key, value in checked(request).labels.items() if not key.startswith("trainmaster-")}
    assert own == shown
    assert request.instance_properties.labels["trainmaster-job"] == "digits_1"


def test_the_emulators_regions_are_regions_there_are() -> None:
    zones = set(Catalog(Links("http://localhost/compute/v1", "p")).zone_names())
    assert zones <= {zone for region in REGION_ZONES.values() for zone in region}
