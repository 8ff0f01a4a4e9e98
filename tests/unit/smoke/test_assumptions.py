"""The table of assumptions: it covers what the repository calls unconfirmed, and every difference
is named.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from smoke import report
from smoke.assumptions import ASSUMPTIONS
from smoke.findings import Verdict, compare
from smoke.steps import Outcome, Result

ROOT = Path(__file__).parents[3]
UNCONFIRMED = re.compile(r"(?i)\b(is|are|it is also|\() ?unconfirmed|not verified on google cloud")
SEARCHED = (
    "docs/**/*.md",
    "infra/*.md",
    "infra/*.tf",
    "emulators/**/*.py",
    "shared/**/*.py",
    "README.md",
)
ALL_RIGHT = {
    "python": "3.12",
    "engine": "no container engine",
    "container": "ran",
    "missing_object": "404",
    "missing_job_file": "403",
    "gang": "created",
    "database_condition": "reads and writes",
    "spot": "created",
    "kept_machines": "taken",
    "second_region": "ran",
    "field_mask": "accepted",
    "deletion_by_id": "deleted",
    "maintenance": "migrated",
    "maintenance_event": "MIGRATE_ON_HOST_MAINTENANCE",
    "heartbeat": "readable",
    "deletion_found_s": "71",
    "gang_save": "saved",
    "peer_channel": "reached",
    "alive_series": "42",
    "hung_vm": "134",
    "log_copies": "1 in trainmaster",
    "log_resource": "ml_job",
    "schemas": "accept the events",
    "invoker_check": "off",
    "capacity_role": "created",
    "disabled_api": "not reported",
    "gcloud_ml": "works",
    "tpu_nodes": "answers",
    "tpu_queue": "answers",
    "dead_letters": "0",
}


def test_each_file_that_calls_a_fact_unconfirmed_is_the_source_of_a_row() -> None:
    files = {path for pattern in SEARCHED for path in ROOT.glob(pattern)} - {
        ROOT / "docs" / "smoke.md"
    }
    stating = {
        str(path.relative_to(ROOT))
        for path in files
        if UNCONFIRMED.search(path.read_text(encoding="utf-8"))
    }
    assert len(stating) > 5, "the search finds the sentences"
    assert stating <= {source for assumption in ASSUMPTIONS for source in assumption.sources}


def test_each_source_exists_and_each_key_is_used_once() -> None:
    assert [
        path for row in ASSUMPTIONS for path in row.sources if not (ROOT / path).is_file()
    ] == []
    keys = [row.key for row in ASSUMPTIONS]
    assert len(keys) == len(set(keys))


def test_each_fact_that_needs_no_tpu_is_noted_by_a_step() -> None:
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "smoke").rglob("*.py"))
    noted = set(re.findall(r'saw\(\s*"(\w+)"', sources)) | set(
        re.findall(r"smoke-fact (\w+) ", sources)
    )
    noted |= set(re.findall(r'\("(tpu_\w+)", "', sources))
    unread = {row.key for row in ASSUMPTIONS if "TPU quota" not in row.read_from} - noted
    assert unread == {
        "boot_image",
        "callers_account",
        "console_iap",
        "elastic_round",
        "gpu_toolkit",
        "guest_attributes_policy",
        "idle_objectives",
        "schedule_token",
        "ssh_role",
    }, "these are not read, as their rows state"


def test_all_facts_as_documented_are_confirmed_except_those_that_nothing_reads() -> None:
    findings = compare(ALL_RIGHT, is_local=False)
    assert {row.assumption.key for row in findings if row.verdict is Verdict.DIFFERENT} == set()
    assert {row.assumption.key for row in findings if row.verdict is Verdict.CONFIRMED} == set(
        ALL_RIGHT
    )


@pytest.mark.parametrize(
    ("key", "seen"),
    [
        ("python", "3.10"),
        ("missing_object", "403"),
        ("missing_job_file", "404"),
        ("maintenance", "lost the VM"),
        ("deletion_found_s", "400"),
        ("second_region", "ran in us-central1-b"),
        ("gang_save", "only worker-0 saved"),
        ("peer_channel", "4.2 s apart"),
        ("alive_series", "81"),
        ("hung_vm", "181"),
        ("log_copies", "1 in GCEMetadataScripts, 1 in trainmaster"),
        ("log_resource", "generic_task"),
        ("tpu_queue", "refuses: INVALID_ARGUMENT"),
    ],
)
def test_fact_that_differs_is_the_only_difference(key: str, seen: str) -> None:
    findings = compare({**ALL_RIGHT, key: seen}, is_local=False)
    assert [
        (row.assumption.key, row.seen) for row in findings if row.verdict is Verdict.DIFFERENT
    ] == [(key, seen)]


def test_fact_that_the_local_stack_cannot_show_is_not_judged_there() -> None:
    by_key = {row.assumption.key: row for row in compare({"python": "3.11"}, is_local=True)}
    assert by_key["python"].verdict is Verdict.NOT_SEEN
    assert "this machine" in by_key["python"].seen
    assert by_key["log_copies"].seen == "its step failed or was skipped"


def test_report_lists_differences_first_and_the_exit_status_shows_them() -> None:
    results = [Result("digits", Outcome.OK), Result("gcloud", Outcome.SKIPPED, "it needs probe")]
    right, wrong = (
        compare(ALL_RIGHT, is_local=False),
        compare({**ALL_RIGHT, "python": "3.10"}, is_local=False),
    )
    assert report.exit_status(results, right) == 0
    assert report.exit_status(results, wrong) == 1
    assert report.exit_status([*results, Result("remove", Outcome.FAILED, "no")], right) == 1
    text = "\n".join(report.lines(results, wrong))
    row = next(line for line in text.splitlines() if "3.10" in line)
    assert [cell.strip() for cell in row.split("|")[1:5]] == [
        "DIFFERENT",
        "The image of the default runtime has Python 3.12.",
        "3.12",
        "3.10",
    ]
    assert re.search(
        r"Assumptions: \d+ ok, 1 DIFFERENT, \d+ not seen\. Failed steps: none\.$", text
    )
