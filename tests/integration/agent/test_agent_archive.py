"""The agent as one zip application that any Python from 3.8 on can run."""

from __future__ import annotations

import io
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from trainmaster.packaging.agent_archive import AGENT, agent_archive, agent_object
from trainmaster.wiring.fleet import agent_files

SCRIPTS = ["startup-script", "shutdown-script"]


def archive() -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(agent_archive()))


def test_same_sources_give_the_same_bytes() -> None:
    first = agent_archive()
    agent_archive.cache_clear()
    assert agent_archive() == first
    assert {entry.date_time for entry in archive().infolist()} == {(1980, 1, 1, 0, 0, 0)}


def test_archive_contains_exactly_the_agents_modules_and_the_table_of_errors() -> None:
    package = AGENT.parent
    modules = {
        f"trainmaster/{path.relative_to(package)}"
        for folder in (AGENT, package / "program_errors")
        for path in folder.rglob("*.py")
    }
    assert len(modules) > 10
    assert set(archive().namelist()) == {"__main__.py", "trainmaster/__init__.py"} | modules


def test_archive_imports_without_this_repository(tmp_path: Path) -> None:
    """Run it with a Python that does not have this repository on its path."""
    (tmp_path / "agent.pyz").write_bytes(agent_archive())
    done = subprocess.run(
        [sys.executable, "-I", tmp_path / "agent.pyz"], capture_output=True, text=True, check=False
    )
    assert "agent.pyz/trainmaster/agent/main.py" in done.stderr
    assert "IndexError" in done.stderr  # it starts, and misses its argument


def test_compiled_archive_is_the_same_in_all_processes_and_runs_its_compiled_modules(
    tmp_path: Path,
) -> None:
    """The process that stores it and those that name it have the same object."""
    write = (
        "import sys; from trainmaster.packaging.agent_archive import agent_archive as archive;"
        "sys.stdout.buffer.write(archive(compiled=True))"
    )
    environment = {"PYTHONPATH": str(AGENT.parents[1]), "PYTHONHASHSEED": "1"}
    written = subprocess.run(
        [sys.executable, "-c", write], env=environment, capture_output=True, check=True
    ).stdout
    assert written == agent_archive(compiled=True)
    (tmp_path / "agent.pyz").write_bytes(written)
    command = [
        sys.executable,
        "-S",
        "-c",
        "from trainmaster.agent import main; print(main.__file__)",
    ]
    variables = {"PYTHONPATH": str(tmp_path / "agent.pyz")}
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.strip().endswith("agent.pyz/trainmaster/agent/main.pyc")


def test_name_of_the_object_contains_the_hash_of_its_content() -> None:
    assert (
        agent_object(b"")
        == "agent/e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855.zip"
    )
    assert agent_object(agent_archive()) != agent_object(agent_archive() + b"x")


def test_metadata_without_the_address_of_the_agent_is_refused_by_the_settings_name() -> None:
    with pytest.raises(ValueError, match="TRAINMASTER_AGENT"):
        agent_files("")


@pytest.mark.parametrize("key", SCRIPTS)
def test_script_passes_shellcheck(tmp_path: Path, key: str) -> None:
    script = tmp_path / "script.sh"
    script.write_text(agent_files(f"gs://b/{agent_object(agent_archive())}")[key])
    shellcheck = Path(sys.executable).with_name("shellcheck")
    done = subprocess.run([shellcheck, script], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
