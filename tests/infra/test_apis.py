"""Google's APIs: every API that the code or Terraform calls is enabled by infra/, and no other."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from functools import cache
from typing import Final

from tests.infra import iam_table
from tests.infra.conftest import Plan
from trainmaster.gcp.tools import inspection
from trainmaster_emulators.checkout import ROOT

API_OF_RESOURCE: Final = {
    "google_artifact_registry": "artifactregistry",
    "google_billing_budget": "billingbudgets",
    "google_cloud_run": "run",
    "google_cloud_scheduler": "cloudscheduler",
    "google_cloudfunctions2": "cloudfunctions",
    "google_compute": "compute",
    "google_firestore": "firestore",
    "google_iap": "iap",
    "google_logging": "logging",
    "google_monitoring": "monitoring",
    "google_project_iam": "cloudresourcemanager",
    "google_project_service": "serviceusage",
    "google_project": "cloudresourcemanager",
    "google_pubsub": "pubsub",
    "google_secret_manager": "secretmanager",
    "google_service_account": "iam",
    "google_storage": "storage",
    "terraform_data": "run",
    "time_sleep": "serviceusage",
}
"""Prefix of Terraform's resource types → the API that manages them.

The longest matching prefix counts. `time_sleep` calls none; the only command of a `terraform_data`
is one of Cloud Run.
"""

API_OF_LIBRARY: Final = {"scheduler": "cloudscheduler"}
"""Package below google.cloud → API, where the names differ."""

NOT_CALLED_BY_NAME: Final = {
    "aiplatform": (
        "the function `api` checks its permissions, which Cloud Resource Manager evaluates"
    ),
    "cloudbuild": "Cloud Functions builds with it",
}
ALWAYS_ENABLED: Final = {
    "billing": (
        "only `trainmaster prices update` calls it, in the project of its caller (docs/cost.md)"
    ),
    "iap": "enabled with the console (tests/infra/test_console.py)",
    "openidconnect": "returns whose token it is; not enabled per project",
    "serviceusage": (
        "enables the others; `gcloud services enable` is the first command of infra/README.md"
    ),
    "www": "publishes keys; not enabled per project",
}
MENTION: Final = re.compile(r"googleapis|google\.cloud|\bapi\(")
HOST: Final = re.compile(r"https://([a-z]+)\.googleapis\.com")


def apis_in_code(source: str) -> Iterator[str]:
    """Yield APIs in URLs, in imports of client libraries, and in the agent's `api("NAME", …)`."""
    if not MENTION.search(source):
        return
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(str(text)):
                yield from HOST.findall(text)
            case ast.ImportFrom(module="google.cloud", names=names):
                yield from (library_api(alias.name) for alias in names)
            case ast.ImportFrom(module=str(module)) if module.startswith("google.cloud."):
                yield library_api(module.split(".")[2])
            case ast.Call(func=ast.Name("api"), args=[ast.Constant(str(name)), *_]):
                yield name


def library_api(package: str) -> str:
    name = re.sub(r"_v\d+\w*$", "", package)
    return API_OF_LIBRARY.get(name, name)


@cache
def called_apis() -> frozenset[tuple[str, str]]:
    """Return each API with the files that call it."""
    return frozenset(_called_apis())


def _called_apis() -> Iterator[tuple[str, str]]:
    for folder in ("shared", "functions"):
        for path in (ROOT / folder).rglob("*.py"):
            for api in set(apis_in_code(path.read_text(encoding="utf-8"))):
                yield api, str(path.relative_to(ROOT))
    yield from ((field.name, inspection.__name__) for field in fields(inspection.Endpoints))
    for path in (ROOT / "infra").rglob("*.tf"):
        document = iam_table.load(path)
        for block in (*document.get("resource", []), *document.get("data", [])):
            for kind in iam_table.strings(list(block)):
                prefix = max(
                    (name for name in API_OF_RESOURCE if kind.startswith(name)),
                    key=len,
                    default=None,
                )
                assert prefix, f"add the API of {kind} to API_OF_RESOURCE"
                yield API_OF_RESOURCE[prefix], str(path.relative_to(ROOT))


def enabled_apis(plan: Plan) -> set[str]:
    services = plan.of("google_project_service").values()
    return {service["service"].removesuffix(".googleapis.com") for service in services}


def test_called_apis_are_enabled(plan: Plan) -> None:
    enabled = enabled_apis(plan) | set(ALWAYS_ENABLED)
    assert {(api, file) for api, file in called_apis() if api not in enabled} == set()


def test_enabled_apis_are_called(plan: Plan) -> None:
    assert enabled_apis(plan) - {api for api, _ in called_apis()} - set(NOT_CALLED_BY_NAME) == set()


def test_first_command_enables_the_apis_that_terraform_needs() -> None:
    page = (ROOT / "infra" / "README.md").read_text(encoding="utf-8")
    (command,) = re.findall(r"(?m)^gcloud services enable (.*)$", page)
    assert {"serviceusage.googleapis.com", "cloudresourcemanager.googleapis.com"} <= set(
        command.split()
    )
