"""The command that explores many histories, and its table."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator

import pytest

from tests.explorer import charges
from tests.explorer.__main__ import main


@pytest.fixture(autouse=True)
def logs_afterwards() -> Iterator[None]:
    yield
    logging.disable(logging.NOTSET)


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["explorer", "--processes", "1", *arguments])
    return main()


def test_histories_are_spread_over_the_profiles(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [f"--profile={name}" for name in ("races", "set-ups")]
    assert run(monkeypatch, "--histories", "4", *chosen) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    table = [line for line in lines if len(line) == 4]
    counts = [(profile, histories, violations) for profile, histories, _, violations in table]
    assert counts == [
        ("profile", "histories", "violations"),
        ("races", "2", "0"),
        ("set-ups", "2", "0"),
        ("all", "4", "0"),
    ]


def test_violations_are_counted_with_their_seeds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(charges, "RESTARTS_MAX", 0)
    assert run(monkeypatch, "--profile", "launchers", "--seeds", "0:3") == 1
    out = capsys.readouterr().out
    violations = out.count("VIOLATED more than five restarts of: --profile launchers --seeds ")
    assert violations > 0
    assert f"more than five restarts of: {{'launchers': {violations}}}" in out
