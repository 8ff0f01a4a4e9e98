"""Mutation tests of the rules: `make mutants`, or `make mutants
MODULE=shared/trainmaster/core/rules/capacity.py`.

cosmic-ray changes one expression of a module at a time (a mutant) and runs the tests that
suites.toml names for the module: for the core, the unit tests of core and flows; for an adapter of
Google Cloud, its contract on an emulator. A mutant survives if all of them pass. Then either a test
is missing, or the mutant is equivalent to the original code: equivalent.toml lists such mutants
with their reasons. The run fails if there is any other survivor.

Without MODULE, only the core is tested: a mutant of an adapter takes ten seconds. Mutants are made
in copies of the project, one copy per core. A mutant whose tests did not end in time counts as a
survivor.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final

from cosmic_ray.config import load_config, serialize_config
from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkerOutcome, WorkResult

ROOT: Final = Path(__file__).parents[2]
CONFIG: Final = Path(__file__).with_name("cosmic-ray.toml")
SUITES: Final = Path(__file__).with_name("suites.toml")
IMAGES: Final = ".images"
"""Folder of the emulators, which is linked into the copies."""
EQUIVALENT: Final = Path(__file__).with_name("equivalent.toml")
NOT_COPIED: Final = shutil.ignore_patterns(".*", "build", "dist", "__pycache__")
TIMEOUT: Final = "timeout"
"""Output of a run that exceeded `timeout`. cosmic-ray counts the mutant as killed, although no test
failed.
"""
OPERATORS: Final = frozenset(
    {
        "AddNot",
        "NumberReplacer",
        "ReplaceAndWithOr",
        "ReplaceBinaryOperator_Add_Sub",
        "ReplaceBinaryOperator_Mul_Add",
        "ReplaceBinaryOperator_Sub_Add",
        "ReplaceBreakWithContinue",
        "ReplaceComparisonOperator_Eq_NotEq",
        "ReplaceComparisonOperator_GtE_Gt",
        "ReplaceComparisonOperator_Gt_GtE",
        "ReplaceComparisonOperator_IsNot_Is",
        "ReplaceComparisonOperator_Is_IsNot",
        "ReplaceComparisonOperator_LtE_Lt",
        "ReplaceComparisonOperator_Lt_LtE",
        "ReplaceComparisonOperator_NotEq_Eq",
        "ReplaceContinueWithBreak",
        "ReplaceFalseWithTrue",
        "ReplaceOrWithAnd",
        "ReplaceTrueWithFalse",
        "ReplaceUnaryOperator_Delete_Not",
        "ZeroIterationForLoop",
    }
)
"""One way to break each kind of expression. cosmic-ray has ten more ways to replace each arithmetic
operator.
"""


@dataclass(frozen=True, order=True, slots=True)
class Survivor:
    function: str
    """With its module: `shared/trainmaster/core/rules/capacity.py:next_zone`."""
    operator: str
    diff: str


def main(paths: list[str]) -> int:
    config = load_config(str(CONFIG))
    modules = sorted(
        find_modules(paths or config["module-path"]),
        key=lambda path: path.stat().st_size,
        reverse=True,
    )
    with tempfile.TemporaryDirectory(prefix="trainmaster-mutants-") as folder:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(min(os.cpu_count() or 1, len(modules))):
            copies.put(copy_project(Path(folder) / str(number), config, modules))

        def test_in_a_copy(module: Path) -> list[Survivor]:
            copy = copies.get()
            try:
                return test_module(module.relative_to(ROOT), copy, config)
            finally:
                copies.put(copy)

        with ThreadPoolExecutor(copies.qsize()) as pool:
            survivors = sorted(
                survivor for batch in pool.map(test_in_a_copy, modules) for survivor in batch
            )
    equivalent = tomllib.loads(EQUIVALENT.read_text(encoding="utf-8"))
    unexplained = [
        survivor
        for survivor in survivors
        if survivor.operator not in equivalent.get(survivor.function, {})
    ]
    for survivor in unexplained:
        print(f"\n{survivor.function}: {survivor.operator}\n{survivor.diff}")
    print(
        f"\n{len(survivors)} mutants survived; {len(unexplained)} of them are not listed in"
        f" {EQUIVALENT.name}"
    )
    return 1 if unexplained else 0


def find_modules(paths: list[str]) -> Iterator[Path]:
    for name in paths:
        path = ROOT / name
        yield from path.rglob("[a-z]*.py") if path.is_dir() else [path]


def copy_project(folder: Path, config: dict[str, Any], modules: Iterable[Path]) -> Path:
    """Copy the project and run its tests, which must pass without a mutant.

    The run also writes the bytecode.
    """
    shutil.copytree(ROOT, folder, ignore=NOT_COPIED)
    (folder / IMAGES).symlink_to(ROOT / IMAGES)
    for tests in sorted({tests_of(module.relative_to(ROOT)) for module in modules}):
        subprocess.run(
            test_command(config, tests), cwd=folder, check=True, stdout=subprocess.DEVNULL
        )
    return folder


def tests_of(module: Path) -> str:
    """Return the tests of a module, as arguments of pytest.

    Raises KeyError if suites.toml names none.
    """
    suites: dict[str, str] = tomllib.loads(SUITES.read_text(encoding="utf-8"))
    paths = [module, *module.parents]
    found = next((suites[str(path)] for path in paths if str(path) in suites), None)
    if found is None:
        raise KeyError(f"{SUITES.name} names no tests for {module}: add them")
    return found


def test_command(config: dict[str, Any], tests: str) -> list[str]:
    return [sys.executable, *shlex.split(config["test-command"])[1:], *shlex.split(tests)]


def test_module(module: Path, copy: Path, config: dict[str, Any]) -> list[Survivor]:
    """Test every mutant of one module.

    `module` is relative to the project, of which `copy` is a copy.
    """
    name = str(module).replace("/", "-")
    settings, session = str(copy / f"{name}.toml"), str(copy / f"{name}.sqlite")
    own = {
        **config,
        "module-path": [str(module)],
        "test-command": shlex.join(test_command(config, tests_of(module))),
    }
    Path(settings).write_text(serialize_config(own), encoding="utf-8")
    cosmic_ray = Path(sys.executable).with_name("cosmic-ray")
    subprocess.run([cosmic_ray, "init", settings, session], cwd=copy, check=True)
    lines = (ROOT / module).read_text(encoding="utf-8").splitlines()
    with use_db(session, WorkDB.Mode.open) as database:
        skip_unwanted(database, lines)
    subprocess.run([cosmic_ray, "exec", settings, session], cwd=copy, check=True)
    with use_db(session, WorkDB.Mode.open) as database:
        mutations = {item.job_id: item.mutations[0] for item in database.work_items}
        results = [(mutations[job_id], result) for job_id, result in database.results]
    survivors = [
        Survivor(
            f"{module}:{mutation.definition_name or ''}",
            mutation.operator_name.removeprefix("core/"),
            result.diff or "",
        )
        for mutation, result in results
        if result.test_outcome is TestOutcome.SURVIVED or result.output == TIMEOUT
    ]
    tested = sum(result.worker_outcome is WorkerOutcome.NORMAL for _, result in results)
    print(f"{module}: {tested} mutants, {len(survivors)} survived", flush=True)
    return survivors


def skip_unwanted(database: WorkDB, lines: list[str]) -> None:
    """Skip the operators that are not in OPERATORS, and decorators: `frozen` and `slots` of a
    dataclass.
    """
    skipped = WorkResult(WorkerOutcome.SKIPPED)
    for item in list(database.pending_work_items):
        (mutation,) = item.mutations
        is_decorator = lines[mutation.start_pos[0] - 1].lstrip().startswith("@")
        if is_decorator or mutation.operator_name.removeprefix("core/") not in OPERATORS:
            database.set_result(item.job_id, skipped)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
