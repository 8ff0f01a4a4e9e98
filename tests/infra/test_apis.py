"""Each of Google's APIs that something here calls is switched on, and none that nothing calls."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from emulators.stack.state import ROOT
from tests.infra.conftest import Plan

OF_TERRAFORM: Final = {
    "google_artifact_registry": "artifactregistry",
    "google_billing_budget": "billingbudgets",
    "google_cloud_run": "run",
    "google_cloud_scheduler": "cloudscheduler",
    "google_cloudfunctions2": "cloudfunctions",
    "google_compute": "compute",
    "google_firestore": "firestore",
    "google_logging": "logging",
    "google_monitoring": "monitoring",
    "google_project_iam": "cloudresourcemanager",
    "google_project_service": "serviceusage",
    "google_project": "cloudresourcemanager",
    "google_pubsub": "pubsub",
    "google_service_account": "iam",
    "google_storage": "storage",
}
"""How kinds of resources begin, the longest first to count."""
BESIDES: Final = {
    "aiplatform": "clients of the API need its permissions, which Cloud Resource Manager is asked for",
    "cloudbuild": "Cloud Functions builds with it",
}
NEED_NO_SWITCH: Final = {
    "openidconnect": "tells who a token is of; belongs to no project",
    "serviceusage": "switches on the others: `gcloud services enable` is the first command of infra/README.md",
    "www": "publishes keys",
}
HOST: Final = re.compile(r"https://([a-z]+)\.googleapis\.com")
CLIENT: Final = re.compile(
    r"(?m)^\s*(?:from google\.cloud import |(?:from|import) google\.cloud\.)([a-z]+)(?:_v\d+)?\b"
)


def called() -> Iterator[tuple[str, str]]:
    """API, and by whom."""
    for folder in ("shared", "cli", "functions"):
        for path in (ROOT / folder).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            for api in {*HOST.findall(text), *CLIENT.findall(text)}:
                yield api, str(path.relative_to(ROOT))
    for path in (ROOT / "infra").rglob("*.tf"):
        for kind in re.findall(r'(?m)^(?:resource|data) "(google_\w+)"', path.read_text(encoding="utf-8")):
            beginning = max((each for each in OF_TERRAFORM if kind.startswith(each)), key=len, default=None)
            assert beginning, f"which API makes a {kind}?"
            yield OF_TERRAFORM[beginning], str(path.relative_to(ROOT))


def switched_on(plan: Plan) -> set[str]:
    return {each["service"].removesuffix(".googleapis.com") for each in plan.of("google_project_service").values()}


def test_what_is_called_is_switched_on(plan: Plan) -> None:
    on = switched_on(plan) | set(NEED_NO_SWITCH)
    assert {(api, by) for api, by in called() if api not in on} == set()


def test_what_is_switched_on_is_called(plan: Plan) -> None:
    assert switched_on(plan) - {api for api, _ in called()} - set(BESIDES) == set()


def test_nothing_is_made_before_the_apis_are_on(plan: Plan) -> None:
    """Everything waits for them, by itself or through what it names."""
    text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "infra").glob("*.tf"))
    blocks = re.findall(r'(?ms)^(?:resource|data|module) "[^\n]*\{\n.*?^\}', text)
    waiting = [block for block in blocks if not block.startswith('resource "google_project_service"')]
    names = re.compile(r"\b(google_\w+\.\w+|module\.\w+|local\.(?:pubsub_agent|environment))")
    assert not [block.splitlines()[0] for block in waiting if not names.search(block.split("\n", 1)[1])]


def test_the_first_command_switches_on_what_terraform_itself_needs() -> None:
    page = (ROOT / "infra" / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"(?m)^gcloud services enable (.*)$", page)
    assert {"serviceusage.googleapis.com", "cloudresourcemanager.googleapis.com"} <= set(command.split())
