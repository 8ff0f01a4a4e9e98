"""The agent as a metadata value: one zip application that any Python from 3.8 on can run."""

from __future__ import annotations

import base64
import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from shared.wiring.agent_archive import agent_files

VALUE_MAX = 262_144
"""Source: Compute Engine's limit on one metadata value, in bytes."""
AGENT = Path(__file__).parents[3] / "shared" / "agent"


def archive() -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(base64.b64decode(agent_files()["trainmaster-agent"])))


def test_metadata_values_are_below_half_of_the_size_limit() -> None:
    sizes = {key: len(value) for key, value in agent_files().items()}
    print(sizes)
    assert max(sizes.values()) < VALUE_MAX / 2


def test_same_sources_give_the_same_bytes() -> None:
    first = agent_files()
    agent_files.cache_clear()
    assert agent_files() == first
    assert {entry.date_time for entry in archive().infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_archive_contains_exactly_the_agents_modules() -> None:
    modules = {f"shared/agent/{path.relative_to(AGENT)}" for path in AGENT.rglob("*.py")}
    assert len(modules) > 10
    assert set(archive().namelist()) == {"__main__.py", "shared/__init__.py"} | modules


def test_archive_imports_without_this_repository(tmp_path: Path) -> None:
    """Run it with a Python that does not have this repository on its path."""
    (tmp_path / "agent.pyz").write_bytes(base64.b64decode(agent_files()["trainmaster-agent"]))
    done = subprocess.run([sys.executable, "-I", tmp_path / "agent.pyz"], capture_output=True, text=True, check=False)
    assert "agent.pyz/shared/agent/main.py" in done.stderr
    assert "IndexError" in done.stderr  # it starts, and misses its argument


@pytest.mark.parametrize("key", ["startup-script", "shutdown-script"])
def test_script_passes_shellcheck(tmp_path: Path, key: str) -> None:
    script = tmp_path / "script.sh"
    script.write_text(agent_files()[key])
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
