"""Suites that run in several processes give the results that they have in one, and end if a process or a test does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
VARIABLES: Final = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
CONFTEST: Final = """
import os
import pytest

def pytest_configure(config):
    config.addinivalue_line("markers", "emulator: as in the real suite")

@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with open("log", "a") as log:
        print("start", os.getpid(), tmp_path_factory.mktemp("server"), file=log)
    yield os.getpid()
    with open("log", "a") as log:
        print("stop", os.getpid(), file=log)
"""
MODULES: Final = {
    "test_a": """
        import time, pytest
        @pytest.mark.emulator
        def test_uses_the_server(server): time.sleep(0.4)
        def test_is_in_its_process(server):
            import os
            assert server == os.getpid()
    """,
    "test_b": """
        import time
        def test_prints_and_fails():
            time.sleep(0.2)
            print("said by b")
            assert 1 == 2
        def test_follows(): pass
    """,
    "test_c": """
        import os, pytest
        @pytest.mark.skip(reason="no machine")
        def test_skipped(): pass
        def test_passes(): pass
        def test_dies(): os._exit(7)
        def test_after_it(): pass
    """,
    "test_d": """
        import pytest
        @pytest.fixture(scope="module")
        def broken_end():
            yield
            raise RuntimeError("the end is broken")
        @pytest.mark.parametrize("number", range(20))
        def test_passes(number, broken_end): pass
    """,
    "test_e": """
        def test_passes(): pass
    """,
}


def run_suite(folder: Path, *options: str) -> tuple[int, str]:
    """Run the modules, each a unit of work, and return pytest's status and report."""
    suite = folder / "tests" / "unit"
    suite.mkdir(parents=True)
    (folder / "tests" / "conftest.py").write_text(CONFTEST)
    for name, text in MODULES.items():
        (suite / f"{name}.py").write_text("\n".join(line[8:] for line in text.splitlines()))
    command = [sys.executable, "-m", "pytest", "--processes=2", "-p", "tests.support.forks", "-rA", *options]
    isolated = ["-c", "/dev/null", "--rootdir", ".", "-p", "no:cacheprovider", "--import-mode=importlib", "tests"]
    done = subprocess.run([*command, *isolated], cwd=folder, env=VARIABLES, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def test_results_are_those_of_one_process_and_a_dead_one_is_replaced(tmp_path: Path) -> None:
    status, report = run_suite(tmp_path)
    assert status == 1
    assert "3 failed, 25 passed, 1 skipped, 1 error" in report, report
    assert "FAILED tests/unit/test_b.py::test_prints_and_fails - assert 1 == 2" in report
    assert report.count("\nsaid by b") == 1
    assert "FAILED tests/unit/test_c.py::test_dies" in report
    assert "FAILED tests/unit/test_c.py::test_after_it" in report
    assert "its process ended with exit code 7, in tests/unit/test_c.py::test_dies" in report
    assert "ERROR tests/unit/test_d.py::test_passes[19] - RuntimeError: the end is broken" in report
    start, stop = (tmp_path / "log").read_text().splitlines()
    assert start.split()[:2] == ["start", stop.split()[1]]
    assert Path(start.split()[2]).parent.name.startswith("process"), "each process has its own folders"


def test_first_failure_ends_all_processes_after_their_tests(tmp_path: Path) -> None:
    status, report = run_suite(tmp_path, "-x")
    assert status == 1
    assert "stopping after 1 failures" in report
    assert "PASSED tests/unit/test_a.py::test_uses_the_server" in report, "it had begun"
    assert "test_is_in_its_process" not in report
    assert "test_e" not in report
    assert len((tmp_path / "log").read_text().splitlines()) == 2, "the server has stopped"
