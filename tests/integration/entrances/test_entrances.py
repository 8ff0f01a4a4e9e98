"""Every recorded document through every entrance: the same answer and plan, or a difference with
its reason.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import functions_framework
import pytest
from flask import Flask

from tests.integration.api.client import ACCOUNT, TOKENS, Api
from tests.support.console_site import Site
from tests.support.jobs import change_plan
from tests.support.world import World
from tests.unit.cost.price_lists import price_list
from tests.unit.flows.test_upload import AT_THREE, Bucket
from tests.unit.jobspec.test_manifests import WITH_REGION
from trainmaster.api.request import Service
from trainmaster.cli import schedule
from trainmaster.cli.doctor.file_checks import check_file
from trainmaster.cli.doctor.findings import Status
from trainmaster.cli.gcloud_flags import apply_flags
from trainmaster.cli.job_files import check_document, read_job, with_job_name
from trainmaster.client import client as python_client
from trainmaster.console.pages.submission import SubmissionForm, check_submission
from trainmaster.core.intake.named_resources import AllowedResources, ResourceKind
from trainmaster.core.model.plan import Plan
from trainmaster.core.model.tuning import Tuning
from trainmaster.errors import PermanentError
from trainmaster.flows import submit
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.job_document import job_file_of
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.document_kinds import AI_PLATFORM, detect_kind
from trainmaster.jobspec.reading.parse_document import parse_document
from trainmaster.settings import settings
from trainmaster.wiring import api as wiring
from trainmaster_local.memory.access import MemoryAccess

Result = tuple[Plan, Tuning | None] | None
"""The plan and other fields of the stored job.

None: the entrance accepts the document and shows no plan.
"""

TESTS: Final = Path(__file__).parents[2]
UNIT: Final = TESTS / "unit" / "jobspec"
FOLDERS: Final = {
    "files": Path(__file__).parent / "files",
    "golden": UNIT / "golden",
    "manifests": UNIT / "manifests",
    "rejected": UNIT / "rejected",
    "refused": UNIT / "manifests" / "refused",
}
DOCUMENTS: Final = {
    **{
        f"{folder}/{path.stem}": path
        for folder, parent in FOLDERS.items()
        for path in sorted(parent.iterdir())
        if path.suffix in (".yaml", ".json")
    },
    **{
        f"examples/{path.parent.name}": path
        for path in sorted((TESTS.parent / "examples").glob("*/job.yaml"))
    },
}
REJECTED: Final = [
    name
    for name in DOCUMENTS
    if name.startswith("rejected/") and "id-" not in name and "region" not in name
]
"""Documents that no entrance accepts.

`unit/jobspec/test_rejected_jobs.py` shows that the job format refuses each. One in eight is enough
to show that each entrance uses the job format; the others are heavy.
"""
HEAVY: Final = [name for number, name in enumerate(REJECTED) if number % 8]

ALL_RESOURCES: Final = AllowedResources("my-project", ("*",))
ALGORITHMS: Final = "gs://bucket/algorithms/algorithms-1.whl#1"
REGION: Final = "us-central1"


@dataclass(frozen=True)
class Sent:
    """What the table of differences needs to know about a document."""

    name: str
    document: Mapping[str, Any]

    @property
    def job_id(self) -> object:
        return self.document.get("jobId") or self.document.get("job_id")

    @property
    def is_manifest(self) -> bool:
        return "apiVersion" in self.document

    @property
    def is_vertex(self) -> bool:
        return not self.is_manifest and detect_kind(self.document) is not AI_PLATFORM

    @property
    def region(self) -> str | None:
        extension = self.document.get("trainmaster")
        region = extension.get("region") if isinstance(extension, dict) else None
        return region if isinstance(region, str) else None

    @property
    def region_option(self) -> str | None:
        """The region that entrances with such an option get.

        None: the manifest names its region (WITH_REGION).
        """
        return None if self.name.rpartition("/")[2] in WITH_REGION else REGION

    @property
    def names_itself(self) -> bool:
        display_name = self.document.get("displayName") or self.document.get("display_name")
        return bool(self.job_id or display_name or self.is_manifest)


@dataclass(frozen=True)
class Difference:
    """Entrances whose answer differs."""

    reason: str
    places: Sequence[str]
    applies: Callable[[Sent], bool]
    accepts: bool
    """What these entrances do, and the others do not."""


def _refuses(reason: str, places: Sequence[str], applies: Callable[[Sent], bool]) -> Difference:
    return Difference(reason, places, applies, accepts=False)


def _accepts(reason: str, places: Sequence[str], applies: Callable[[Sent], bool]) -> Difference:
    return Difference(reason, places, applies, accepts=True)


DIFFERENCES: Final = (
    _refuses(
        "a message has no file whose name could become the job's id",
        ("message",),
        lambda sent: not sent.names_itself,
    ),
    _refuses(
        "each run of a schedule needs an id of its own, and the document has a fixed one",
        ("schedule",),
        lambda sent: bool(sent.job_id) or sent.name == "manifests/trainjob-with-runtime",
    ),
    _refuses(
        "Vertex AI numbers its jobs", ("api",), lambda sent: sent.is_vertex and bool(sent.job_id)
    ),
    _refuses(
        "the API has a resource for each kind of job, and none for manifests",
        ("api",),
        lambda sent: sent.is_manifest,
    ),
    _refuses(
        "the manifest names no region, and this entrance cannot be told one",
        ("upload", "message", "schedule", "console"),
        lambda sent: sent.is_manifest and sent.region_option is not None,
    ),
    _accepts(
        "the form of the console names the job, and nothing else is wrong",
        ("console",),
        lambda sent: (
            sent.name.removeprefix("rejected/job-id-")
            in ("is-number", "starts-with-digit", "with-hyphen")
        ),
    ),
    _accepts(
        "a file has a name, and a caller of the API has to give one",
        ("upload", "command", "doctor", "schedule", "console", "api", "python_client"),
        lambda sent: sent.name == "rejected/job-id-missing",
    ),
    _accepts(
        "an option, the address of the API's resource, or an argument of the call has the region",
        ("command", "api", "python_client"),
        lambda sent: sent.name == "rejected/vertex-without-region",
    ),
    _accepts(
        "the Python client is told the region of jobs that name none",
        ("python_client",),
        lambda sent: sent.name == "rejected/region-missing",
    ),
    _accepts(
        "only the installation knows the earlier tuning job that this one resumes",
        ("doctor",),
        lambda sent: sent.name == "golden/tuning-in-snake-case",
    ),
)
"""The documents that some entrances answer otherwise than the others, and why."""


@dataclass
class Entrances:
    """All entrances of a fresh installation for each call."""

    site: Site
    app: Flask
    """The API, which serves the last one of `services`."""
    services: list[Service]
    worlds: list[World] = field(default_factory=list)

    def world(self) -> World:
        world = World(
            allowed=ALL_RESOURCES, algorithms=ALGORITHMS, gcsfuse="gs://my-bucket/tools/1/gcsfuse"
        )
        world.prices = price_list()
        self.worlds.append(world)
        return world

    def upload(self, _: Sent, path: Path) -> Result:
        bucket = Bucket(self.world())
        name = f"jobs/{path.name}"
        if bucket.notify(name, bucket.put(name, path.read_bytes())) is None:
            problems = bucket.problems(f"gs://bucket/{name}")
            raise PermanentError(
                "; ".join(f"{item['field']}: {item['problem']}" for item in problems)
            )
        return self.stored()

    def command(self, sent: Sent, path: Path) -> Result:
        _, document = read_job(str(path), None, sent.region_option)
        options = {"region": REGION} if sent.is_vertex and sent.region is None else {}
        named = with_job_name(apply_flags(document, options, ()), str(path))
        check_document(named)
        return self.publish(json.dumps(named).encode())

    def doctor(self, sent: Sent, path: Path) -> Result:
        _, document = read_job(str(path), None, sent.region_option)
        findings = check_file(with_job_name(document, str(path)))
        if any(finding.status is Status.FIX for finding in findings):
            raise PermanentError("; ".join(finding.what for finding in findings))
        return None

    def message(self, _: Sent, path: Path) -> Result:
        return self.publish(path.read_bytes())

    def schedule(self, _: Sent, path: Path) -> Result:
        return self.publish(json.dumps(schedule.read_template(path, is_published=True)).encode())

    def console(self, _: Sent, path: Path) -> Result:
        form = SubmissionForm(self.site.world.job, "cloned_1", path.read_text(encoding="utf-8"))
        return self.publish(
            json.dumps(check_submission(self.site.console(), form, "console:1")).encode()
        )

    def api(self, sent: Sent, path: Path) -> Result:
        body = dict(parse_document(path.read_bytes(), path.name))
        kind = detect_kind(body)
        if kind is AI_PLATFORM:
            return self.send(
                kind.collection, body if sent.job_id else {**body, "jobId": "from_caller"}
            )
        named = (
            body
            if sent.names_itself and not sent.job_id
            else {**body, "displayName": "from_caller"}
        )
        return self.send(f"locations/{sent.region or REGION}/{kind.collection}", named)

    def send(self, address: str, body: object) -> Result:
        api = self.served()
        status, answer = api.send("POST", f"/v1/projects/my-project/{address}", body)
        if status != 200:
            raise PermanentError(answer["error"]["message"])
        return self.stored()

    def served(self) -> Api:
        world, access = self.world(), MemoryAccess(TOKENS)
        self.services.append(
            Service("my-project", world.deps, access, lambda: "request-1", ACCOUNT)
        )
        return Api(world, access, self.app.test_client())

    def python_client(self, sent: Sent, path: Path) -> Result:
        client = python_client.Client("my-project", "http://localhost")
        client._api = ApiOf(self.served())  # type: ignore[assignment]
        client.submit(path, sent.region_option)
        return self.stored()

    def publish(self, data: bytes) -> Result:
        submit.handle(data, None, self.world().deps, AT_THREE)
        return self.stored()

    def stored(self) -> Result:
        (job,) = self.worlds[-1].store.recent_jobs(2)
        return job.plan, job.tuning


@dataclass
class ApiOf:
    """The Python client's connection, to an API in this process."""

    api: Api

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        _invocation: str = "",
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        assert not query, "this entrance submits, and does not only check"
        status, answer = self.api.send(method, f"/v1/projects/my-project/{path}", body)
        if status != 200:
            raise PermanentError(answer["error"]["message"])
        return answer


ENTRANCES: Final = (
    "upload",
    "command",
    "doctor",
    "message",
    "schedule",
    "console",
    "api",
    "python_client",
)


@pytest.fixture(scope="module")
def site() -> Site:
    result = Site()
    result.world.submit()
    return result


@pytest.fixture(scope="module")
def services() -> list[Service]:
    return []


@pytest.fixture(scope="module")
def app(services: list[Service]) -> Flask:
    source = TESTS.parent / "functions" / "api.py"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wiring, "service", lambda: services[-1])
        result: Flask = functions_framework.create_app("api", str(source), "http")
    return result


@pytest.fixture
def entrances(
    site: Site, app: Flask, services: list[Service], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Entrances]:
    monkeypatch.setenv("TRAINMASTER_PROJECT", "my-project")
    monkeypatch.setenv(
        "TRAINMASTER_ALLOWED_RESOURCES", ",".join(f"{kind}=*" for kind in ResourceKind)
    )
    settings.cache_clear()
    yield Entrances(site, app, services)
    settings.cache_clear()


def answers(entrances: Entrances, sent: Sent) -> dict[str, Result | str]:
    """Return the result or the refusal of each entrance."""
    results: dict[str, Result | str] = {}
    for entrance in ENTRANCES:
        try:
            results[entrance] = getattr(entrances, entrance)(sent, DOCUMENTS[sent.name])
        except (PermanentError, InvalidJob) as error:
            results[entrance] = str(error)
    return results


def read(name: str) -> Sent:
    """Return the document for the table of differences; an empty one if it cannot be parsed."""
    path = DOCUMENTS[name]
    try:
        return Sent(name, parse_document(path.read_bytes(), path.name))
    except InvalidJob:
        return Sent(name, {"jobId": "unreadable"})


@pytest.mark.heavy(
    fact="every entrance refuses what the job format refuses",
    quick="one rejected document in eight in the same module; `unit/jobspec/test_rejected_jobs.py`",
)
@pytest.mark.parametrize("name", HEAVY)
def test_rejected_document_is_refused_at_every_entrance(entrances: Entrances, name: str) -> None:
    assert all(isinstance(result, str) for result in answers(entrances, read(name)).values())


@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name not in HEAVY])
def test_document_has_the_same_answer_and_plan_at_every_entrance(
    entrances: Entrances, name: str
) -> None:
    sent = read(name)
    results = answers(entrances, sent)
    is_valid = is_valid_job(sent)
    differing = {
        where
        for row in DIFFERENCES
        if row.accepts != is_valid and row.applies(sent)
        for where in row.places
    }
    accepted = {entrance for entrance, result in results.items() if not isinstance(result, str)}

    assert accepted == (set(ENTRANCES) - differing if is_valid else differing), results
    plans = [
        without_wrapper(*result)
        for result in results.values()
        if result and not isinstance(result, str)
    ]
    assert all(plan == plans[0] for plan in plans)


def without_wrapper(plan: Plan, tuning: Tuning | None) -> Result:
    """Name the fields of substitutions as in a document whose jobSpec is at the top level: the
    API's has a wrapper.
    """
    substitutions = tuple(
        replace(item, field=item.field.removeprefix("jobSpec."))
        for item in plan.origin.substitutions
    )
    return change_plan(plan, substitutions=substitutions), tuning


def is_valid_job(sent: Sent) -> bool:
    """Return whether the job format accepts the document.

    The folder says so, except for the files of users.
    """
    folder = sent.name.partition("/")[0]
    if folder != "files":
        return (
            folder in ("golden", "manifests", "examples")
            and sent.name != "golden/tuning-in-snake-case"
        )
    try:
        accept(job_file_of(sent.document, sent.region_option), default_job_id="from_the_file")
    except InvalidJob:
        return False
    return True
