"""`trainmaster doctor JOB.yaml` and `submit --check`: what a job would lack."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.support.jobs import a_plan, a_spec
from tests.support.memory_resources import MemoryResources
from tests.support.world import World
from tests.unit.cost.price_lists import FETCHED_AT, price_list
from trainmaster.cli.doctor import file_checks, job_checks
from trainmaster.cli.doctor.findings import Finding, Status, ok
from trainmaster.cli.main import app
from trainmaster.core.intake.bucket_places import BucketPlace
from trainmaster.core.model.purchase import Purchase, Spot
from trainmaster.core.model.replica_id import TaskType
from trainmaster.core.model.task_group import Accelerator, TaskGroup
from trainmaster.cost.price_list import PriceList
from trainmaster.cost.sku import Unknown
from trainmaster.gcp.project_access import ProjectAccess
from trainmaster.gcp.tools.inspected_resources import Quota
from trainmaster.gcp.tools.inspection import Endpoints, Inspection
from trainmaster.settings import Settings
from trainmaster.wiring import intake_deps as resources_wiring
from trainmaster.wiring import objects as objects_wiring
from trainmaster_local.memory.objects import MemoryObjects


class Project(Inspection):
    """A project with given quotas and permissions."""

    def __init__(self, quotas: dict[str, tuple[float, float]], permissions: Sequence[str]) -> None:
        """`quotas`: used and limit, by metric."""
        super().__init__(
            "my-project",
            Endpoints(),
            ProjectAccess("my-project", endpoint="", accounts_endpoint=""),
        )
        self._quotas = tuple(Quota(metric, used, most) for metric, (used, most) in quotas.items())
        self._permissions = frozenset(permissions)

    def quotas(self, region: str) -> tuple[Quota, ...] | None:
        return self._quotas if region == "us-central1" else None

    def api_permissions(self, permissions: Sequence[str]) -> frozenset[str]:
        return self._permissions & frozenset(permissions)


@pytest.fixture(autouse=True)
def objects(monkeypatch: pytest.MonkeyPatch) -> MemoryObjects:
    objects = MemoryObjects()
    objects.write("gs://bucket/trainer-0.1.tar.gz", b"code", content_type="application/gzip")
    monkeypatch.setattr(objects_wiring, "objects", lambda *_: objects)
    monkeypatch.setattr(resources_wiring, "resources", MemoryResources)
    return objects


def check(
    document: dict[str, object] | None = None,
    quotas: dict[str, tuple[float, float]] | None = None,
    permissions: Sequence[str] = job_checks.SUBMIT_PERMISSIONS,
    prices: PriceList | Unknown = job_checks.NO_PRICES,
    **settings: object,
) -> list[Finding]:
    project = Project({"CPUS": (0, 100)} if quotas is None else quotas, permissions)
    values = Settings(project="my-project", **settings)  # type: ignore[arg-type]
    return list(
        job_checks.check_job(document or {"jobId": "digits_1", **a_spec()}, project, values, prices)
    )


def problems(findings: list[Finding]) -> list[str]:
    return [finding.what for finding in findings if finding.status is Status.FIX]


def test_job_that_lacks_nothing_has_no_problem_and_names_what_is_unknown() -> None:
    findings = check()
    assert problems(findings) == []
    unknown = [finding.what for finding in findings if finding.status is Status.NOT_CHECKED]
    assert [text.partition(":")[0] for text in unknown] == [
        "price of 1 x n1-standard-4, 2 x n1-standard-4",
        "waiting time",
    ]


def test_every_wrong_field_of_a_job_file_is_a_problem() -> None:
    findings = file_checks.check_file(
        {"jobId": "digits_1", **a_spec(masterType="huge", jobDir="digits")}
    )
    assert [text.partition(" ")[0] for text in problems(findings)] == [
        "trainingInput.jobDir",
        "trainingInput.masterType",
    ]
    assert file_checks.check_file({"jobId": "digits_1", **a_spec()}) == [ok("job file of digits_1")]


@pytest.fixture
def no_installation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which neither the environment nor a local stack names an installation."""
    monkeypatch.delenv("TRAINMASTER_PROJECT", raising=False)
    monkeypatch.setenv("TRAINMASTER_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", [("doctor",), ("submit",), ("submit", "--check")], ids=" ".join)
def test_wrong_fields_of_a_job_file_are_shown_without_an_installation(
    command: tuple[str, ...], no_installation: Path
) -> None:
    job_file = no_installation / "job.json"
    job_file.write_text(json.dumps(a_spec(masterType="huge")), encoding="utf-8")
    result = CliRunner().invoke(app, [*command, str(job_file)])
    assert result.exit_code == 1
    assert "trainingInput.masterType" in result.output + str(result.exception)
    assert "no installation" not in result.output + str(result.exception)


def test_doctor_derives_the_id_of_a_job_file_without_one(no_installation: Path) -> None:
    job_file = no_installation / "digits.json"
    job_file.write_text(json.dumps(a_spec()), encoding="utf-8")
    result = CliRunner().invoke(app, ["doctor", str(job_file)])
    assert result.output.startswith("ok   job file of digits_")
    assert "no installation" in str(result.exception)


def test_missing_permission_is_a_problem() -> None:
    assert problems(check(permissions=())) == [
        "you lack the permissions aiplatform.customJobs.create"
    ]


def test_line_says_which_resources_were_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    def found(document: dict[str, object]) -> str:
        (finding,) = [entry for entry in check(document) if entry.what.startswith("found:")]
        return finding.what

    plain = "found: package gs://bucket/trainer-0.1.tar.gz, bucket gs://bucket"
    assert found({"jobId": "digits_1", **a_spec()}) == plain
    account = "job@my-project.iam.gserviceaccount.com"
    secret = "projects/my-project/secrets/key/versions/1"
    named = {
        "jobId": "digits_1",
        **a_spec(serviceAccount=account),
        "trainmaster": {"secrets": {"KEY": secret, "TOKEN": f"{secret}2"}},
    }
    assert found(named) == f"{plain}, service account {account}, 2 secret versions"
    hidden = MemoryResources()
    hidden.hidden = {account, secret}
    monkeypatch.setattr(resources_wiring, "resources", lambda: hidden)
    assert found(named) == f"{plain}, 1 secret version", "the others are lines of their own"


def test_last_line_says_what_follows(no_installation: Path) -> None:
    job_file = no_installation / "job.json"
    job_file.write_text(json.dumps(a_spec(masterType="huge")), encoding="utf-8")
    result = CliRunner().invoke(app, ["submit", "--check", str(job_file)])
    last = result.output.splitlines()[-1]
    assert last == "1 problem (FIX) keeps the job from running."


def test_missing_bucket_is_a_problem(objects: MemoryObjects) -> None:
    objects.missing_buckets.add("bucket")
    assert problems(check()) == [
        "trainingInput.jobDir names the bucket bucket, which does not exist"
    ]


@pytest.mark.parametrize(
    ("used", "limit", "status"), [(0, 12, Status.OK), (4, 12, Status.LIMIT), (0, 8, Status.FIX)]
)
def test_quota_that_is_used_up_means_waiting_and_one_that_is_too_small_a_problem(
    used: float, limit: float, status: Status
) -> None:
    """The job needs 12 CPUs: a chief and two workers with four each."""
    (finding,) = [
        finding for finding in check(quotas={"CPUS": (used, limit)}) if "quota CPUS" in finding.what
    ]
    assert finding.what.startswith("quota CPUS in us-central1: the job needs 12, and ")
    assert finding.status is status


def test_region_without_an_installation_is_a_problem() -> None:
    (text,) = problems(check(regions="europe-west4"))
    assert "Trainmaster is not installed" in text


def test_needs_are_counted_by_the_metric_of_their_quota() -> None:
    gpus = TaskGroup(
        TaskType.WORKER,
        3,
        "n1-standard-8",
        Accelerator("nvidia-tesla-t4", 2),
        purchase=Purchase(Spot()),
    )
    plan = replace(a_plan(workers=0), groups=(TaskGroup(TaskType.CHIEF, 1, "n2-standard-4"), gpus))
    needs = job_checks.quota_needs(plan)
    assert needs == {
        "INSTANCES": 4,
        "N2_CPUS": 4,
        "CPUS": 24,
        "PREEMPTIBLE_NVIDIA_T4_GPUS": 6,
        "SSD_TOTAL_GB": 400,
    }


CENTRAL = [f"us-central1-{letter}" for letter in "abcf"]
PLACED = {
    "jobId": "digits_1",
    **a_spec(),
    "trainmaster": {
        "placement": {
            "anyOf": [
                {"zones": ["us-central1-a"]},
                {"regions": "any", "spot": "all"},
                {
                    "zones": ["us-central1-b"],
                    "machineSpec": {"machineType": "n1-standard-8"},
                    "after": "1800s",
                },
            ]
        }
    },
}


def test_candidates_of_alternatives_are_listed_in_order_with_price_and_quota_left() -> None:
    assert [finding.status for finding in file_checks.check_file(PLACED)] == [Status.OK]
    quotas = {"CPUS": (0.0, 16.0)}
    findings = check(PLACED, quotas, regions="us-central1", prices=price_list())
    assert problems(findings) == [], "another alternative may fit"
    shown = [finding.what for finding in findings if finding.what.startswith("price of candidate")]
    assert [text.partition(": ")[0] for text in shown] == [
        *(
            f"price of candidate {n} (alternative 2, Spot n1-standard-4 in us-central1-{z})"
            for n, z in enumerate("abcf", 1)
        ),
        "price of candidate 5 (alternative 1, n1-standard-4 in us-central1-a)",
        "price of candidate 6 after 1800 s (alternative 3, n1-standard-8 in us-central1-b)",
    ]
    assert all("per hour" in text for text in shown)
    quota = "quota CPUS in us-central1 (alternative "
    needs = [finding.what for finding in findings if finding.what.startswith(quota)]
    assert [text[len(quota) :].partition("):")[0] for text in needs] == ["2", "1", "3"]
    # The n1-standard-8 of the third alternative need 24 CPUs, and 16 are left.
    assert [finding.status for finding in findings if "needs 24" in finding.what] == [Status.LIMIT]


def test_quotas_that_a_region_does_not_report_are_named_once_for_all_alternatives() -> None:
    findings = check(PLACED, {}, regions="us-central1", prices=price_list())
    unknown = [finding.what for finding in findings if finding.what.startswith("quotas of")]
    assert len(unknown) == 1


def test_transfers_of_data_are_shown_per_region_with_their_price_or_why_there_is_none(
    objects: MemoryObjects,
) -> None:
    objects.places["my-data"] = BucketPlace("US-CENTRAL1")
    listed = {"ordered": [{"regions": ["us-central1", "us-east1", "europe-west4"]}]}
    document = {
        **PLACED,
        "trainmaster": {"placement": {**listed, "data": {"uri": "gs://my-data/set", "gib": 200}}},
    }
    shown = [
        finding.what
        for finding in check(document, prices=price_list())
        if finding.what.startswith("transfer")
    ]
    unknown = "Trainmaster knows no price of transfers from US-CENTRAL1 to europe-west4"
    assert shown == [
        "transfer of 200 GiB of data to us-central1: 0.00 USD per start",
        "transfer of 200 GiB of data to us-east1: 4.00 USD per start",
        f"transfer of 200 GiB of data to europe-west4: not checked, because {unknown}",
        "transfer of images and checkpoints: not checked, because their sizes are not known",
    ]
    assert not [
        finding
        for finding in check(PLACED, prices=price_list())
        if finding.what.startswith("transfer")
    ]


def test_any_of_without_a_price_list_and_regions_without_an_installation_are_problems() -> None:
    (text,) = problems(check(PLACED, regions="us-central1"))
    assert "compares prices, and this installation has none" in text
    elsewhere = {**PLACED, "trainmaster": {"placement": {"ordered": [{}, {"regions": "us-east1"}]}}}
    (text,) = problems(check(elsewhere, regions="us-central1"))
    assert text.startswith(
        "trainmaster.placement.ordered[1] has the region us-east1, in which Trainmaster is not"
    )


def test_check_says_whether_the_job_would_wait_for_other_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World(prices=price_list(), now=FETCHED_AT, limits={"usd_per_hour": 1})
    monkeypatch.setattr(job_checks, "open_store", lambda: world.store)
    document: dict[str, object] = {"jobId": "second", **a_spec()}

    def lines() -> list[str]:
        findings = check(document, prices=price_list(), limits=world.limits)
        return [
            f"{found.status} {found.what}" for found in findings if found.what.startswith("limits")
        ]

    assert lines() == ["ok limits of all jobs: nothing must end before the job starts"]
    world.submit()
    world.deliver()
    (line,) = lines()
    assert line.startswith("! limits of all jobs: Position 1 in the admission queue: it needs 0.")
    assert "usd_per_hour" in line
    (refusal,) = problems(check(document, limits=world.limits))
    assert refusal.startswith("trainingInput has machines without a known price")
