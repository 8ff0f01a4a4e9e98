"""Suites that run in several processes give the results that they have in one, and end if a process
or a test does.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[3]
VARIABLES: Final = {"PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
CONFTEST: Final = """
import os
import pytest

def pytest_configure(config):
    config.addinivalue_line("markers", "emulator: as in the real suite")

@pytest.fixture(autouse=True)
def noted(request):
    with open("log", "a") as log:
        print("run", os.getpid(), request.node.name, file=log)

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
        def test_prints_and_fails():
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


def run_suite(folder: Path, *options: str, modules: Collection[str] = MODULES) -> tuple[int, str]:
    """Run modules, each a unit of work, and return pytest's status and report."""
    suite = folder / "tests" / "unit"
    suite.mkdir(parents=True)
    (folder / "tests" / "conftest.py").write_text(CONFTEST)
    for name in modules:
        (suite / f"{name}.py").write_text(
            "\n".join(line[8:] for line in MODULES[name].splitlines())
        )
    command = [
        sys.executable,
        "-m",
        "pytest",
        "--processes=2",
        "-p",
        "tests.support.forks",
        "-rA",
        *options,
    ]
    isolated = [
        "-c",
        "/dev/null",
        "--rootdir",
        ".",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        "tests",
    ]
    done = subprocess.run(
        [*command, *isolated],
        cwd=folder,
        env=VARIABLES,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def lines(folder: Path, kind: str) -> list[list[str]]:
    """Return what the processes have noted: each line is the id of the process, and more."""
    noted = [line.split() for line in (folder / "log").read_text().splitlines()]
    return [words[1:] for words in noted if words[0] == kind]


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
    (start,), (stop,) = lines(tmp_path, "start"), lines(tmp_path, "stop")
    assert start[0] == stop[0]
    assert Path(start[1]).parent.name.startswith("process"), "each process has its own folders"


def test_process_of_the_first_failure_gets_no_other_unit(tmp_path: Path) -> None:
    status, report = run_suite(tmp_path, "-x", modules=("test_a", "test_b", "test_e"))
    assert status == 1
    assert "stopping after 1 failures" in report
    runs = lines(tmp_path, "run")
    (failed,) = [process for process, name in runs if name == "test_prints_and_fails"]
    its_own = [name for process, name in runs if process == failed]
    assert its_own[its_own.index("test_prints_and_fails") + 1 :] in ([], ["test_follows"])
    assert len(lines(tmp_path, "start")) == len(lines(tmp_path, "stop"))
