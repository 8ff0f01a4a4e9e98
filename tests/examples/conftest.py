"""Fixtures for the examples' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def tensorflow_image() -> Path:
    """The environment of a VM of runtimeVersion 2.21; tests that need it fail where it is missing."""
    folder = ROOT / ".images" / "tensorflow"
    if not (folder / "bin" / "python").exists():
        pytest.fail(f"no TensorFlow environment at {folder}: `make setup` builds it")
    return folder
