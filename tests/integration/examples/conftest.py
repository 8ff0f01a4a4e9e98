"""Fixtures of the examples' tests: the runtime images."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def tensorflow_image() -> Path:
    """Return the Python environment of runtimeVersion 2.21.

    A test that needs it fails if it is missing.
    """
    return image("tensorflow")


@pytest.fixture(scope="session")
def scikit_learn_image() -> Path:
    """Return the Python environment of runtimeVersion scikit-learn-1.9.

    A test that needs it fails if it is missing.
    """
    return image("scikit-learn")


def image(name: str) -> Path:
    folder = ROOT / ".images" / name
    if not (folder / "bin" / "python").exists():
        pytest.fail(f"there is no runtime image at {folder}: build it with `make images`")
    return folder
