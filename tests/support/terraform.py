"""The terraform program of the tests in tests/infra/."""

from __future__ import annotations

import os
import shutil
from typing import Final

import pytest

REQUIRED: Final = "TRAINMASTER_TESTS_REQUIRE_TERRAFORM"
"""Environment variable that is set where no test may be skipped (cloudbuild.yaml)."""


def terraform_program() -> str:
    """Return the path of terraform.

    Without it the test is skipped, or fails where terraform is required.
    """
    program = shutil.which("terraform")
    if program is None and os.environ.get(REQUIRED):
        pytest.fail(f"terraform is not installed, and {REQUIRED} is set")
    if program is None:
        pytest.skip("terraform is not installed")
    return program
