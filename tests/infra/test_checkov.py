"""checkov's rules for Google Cloud on infra/. An exception is a comment with its reason next to the
resource.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from trainmaster_emulators.checkout import ROOT

HEAVY = pytest.mark.heavy(
    fact="infra/ passes checkov",
    quick="nothing: checkov is a program of its own, in an environment of its own",
)

CHECKOV = ROOT / ".images" / "checkov" / "bin" / "checkov"


def results(*words: str) -> dict[str, list[dict[str, Any]]]:
    """Run checkov, which `make test-all` installs, and return its results by kind."""
    done = subprocess.run(
        [str(CHECKOV), *words, "--output", "json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    checks: dict[str, list[dict[str, Any]]] = json.loads(done.stdout)["results"]
    return checks


@HEAVY
@pytest.mark.timeout(400)
def test_infra_passes_checkov_and_every_exception_has_a_reason() -> None:
    checks = results("--config-file", "infra/.checkov.yaml")
    assert [
        f"{check['check_id']} {check['resource']}: {check['check_name']}"
        for check in checks["failed_checks"]
    ] == []
    assert checks["parsing_errors"] == []
    assert checks["passed_checks"]
    for check in checks["skipped_checks"]:
        assert len(check["check_result"]["suppress_comment"].split()) > 3, check["check_id"]


@HEAVY
@pytest.mark.timeout(400)
def test_checkov_detects_a_bucket_without_public_access_prevention(tmp_path: Path) -> None:
    (tmp_path / "wrong.tf").write_text(
        'resource "google_storage_bucket" "x" {\n  name     = "x"\n  location = "EU"\n}\n'
    )
    words = [
        "--directory",
        str(tmp_path),
        "--framework",
        "terraform",
        "--skip-download",
        "--quiet",
        "--compact",
    ]
    assert "CKV_GCP_114" in {check["check_id"] for check in results(*words)["failed_checks"]}
