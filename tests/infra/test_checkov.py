"""infra/ against checkov's rules for Google Cloud: each is kept, or skipped with its reason where it stands."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from emulators.stack.state import ROOT

CHECKOV = ROOT / ".images" / "checkov" / "bin" / "checkov"
PASSED_MIN = 100


def results(*words: str) -> dict[str, list[dict[str, Any]]]:
    """`make test-all` installs checkov; `make check-infra` shows this to a person."""
    done = subprocess.run(
        [str(CHECKOV), *words, "--output", "json"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    found: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)["results"]
    return found


@pytest.mark.heavy
@pytest.mark.timeout(400)
def test_every_rule_is_kept_or_skipped_with_its_reason() -> None:
    found = results("--config-file", "infra/.checkov.yaml")
    assert [f"{each['check_id']} {each['resource']}: {each['check_name']}" for each in found["failed_checks"]] == []
    assert found["parsing_errors"] == []
    assert len(found["passed_checks"]) > PASSED_MIN
    for each in found["skipped_checks"]:
        assert len(each["check_result"]["suppress_comment"].split()) > 3, each["check_id"]


@pytest.mark.heavy
@pytest.mark.timeout(400)
def test_what_breaks_a_rule_is_found(tmp_path: Path) -> None:
    (tmp_path / "wrong.tf").write_text(
        'resource "google_storage_bucket" "x" {\n  name     = "x"\n  location = "EU"\n}\n'
    )
    words = ["--directory", str(tmp_path), "--framework", "terraform", "--skip-download", "--quiet", "--compact"]
    broken = {each["check_id"] for each in results(*words)["failed_checks"]}
    assert "CKV_GCP_114" in broken, "public access prevention"
