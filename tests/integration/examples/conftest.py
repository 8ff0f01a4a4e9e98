"""Fixtures for the examples' tests."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def tensorflow_image() -> Path:
    """The environment of a VM of runtimeVersion 2.21; tests that need it fail where it is missing."""
    return image("tensorflow")


@pytest.fixture(scope="session")
def scikit_learn_image() -> Path:
    """The environment of a VM of runtimeVersion scikit-learn-1.9, likewise."""
    return image("scikit-learn")


def image(name: str) -> Path:
    folder = ROOT / ".images" / name
    if not (folder / "bin" / "python").exists():
        pytest.fail(f"no environment at {folder}: `make images` builds it")
    return folder
