"""The Python files of a program: which of them it imports, and which are not valid Python.

The checks before a submission (`--check`) read them, so that a job does not fail for these reasons
minutes after its VMs were paid for. Nothing is imported or executed. Because an error refuses the
job, an import counts as certain only if no branch, loop or handler can avoid it.
"""

from __future__ import annotations

import ast
import re
import sys
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from trainmaster.program_files.findings import ProgramFiles, ProgramFinding, may_fail, must_fail

_NEWER_SYNTAX: Final = re.compile(
    r"\b[rR]?[fF][rR]?[\"']|^\s*type\s+\w+|^\s*(async\s+)?(def|class)\s+\w+\s*\["
)
"""Lines that a later Python may accept: f-strings (3.12), `type` and type parameters (3.12)."""
_BLOCKS: Final = (ast.With, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
"""Statements whose bodies are searched for imports that are not certain. Loops and `match` rarely
contain any.
"""
_CATCHES_IMPORT_ERROR: Final = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}


@dataclass(frozen=True, slots=True)
class Import:
    """One module that a file imports."""

    file: str
    line: int
    module: str
    """Absolute name; of `from a import b` both `a` and `a.b` are looked up in the folder."""
    names: tuple[str, ...]
    is_certain: bool
    """Whether the import is executed whenever the file is: it is in no function and no branch."""


@dataclass(frozen=True, slots=True)
class Entry:
    """The file that the command runs."""

    file: str
    root: str
    """Folder that Python searches first for imports: empty, or with `/` at the end.

    It is that of a script. `python -m` searches the working directory.
    """


class Sources:
    """The Python files of a program, parsed as the runtime's Python reads them."""

    def __init__(self, files: ProgramFiles, python: str) -> None:
        """`python`: version of the runtime, such as 3.12."""
        major, minor = python.split(".")[:2]
        self._python = (int(major), int(minor))
        self._files = files
        self._trees: dict[str, ast.Module | SyntaxError] = {}

    def check_syntax(self, entry: Entry | None) -> Iterator[ProgramFinding]:
        """Yield the files with an error of syntax.

        Only one that the program imports whenever it runs must fail.
        """
        certain = self.closure(entry, certain_only=True) if entry else frozenset()
        for file in sorted(name for name in self._files.names if name.endswith(".py")):
            error = self._parse(file)
            if not isinstance(error, SyntaxError):
                continue
            problem = f"{file}:{error.lineno or 1} is not valid Python: {error.msg}"
            text = (error.text or "").strip()
            remedy = f"correct the line {text!r}" if text else "correct the file"
            is_certain = file in certain and not self._may_be_newer_syntax(error)
            yield must_fail(problem, remedy) if is_certain else may_fail(problem, remedy)

    def closure(self, entry: Entry, *, certain_only: bool) -> frozenset[str]:
        """Return the files that the entry imports, directly or through others, itself included."""
        found: set[str] = set()
        to_visit = [entry.file]
        while to_visit:
            file = to_visit.pop()
            if file in found:
                continue
            found.add(file)
            for imported in self.imports(file, entry):
                if imported.is_certain or not certain_only:
                    to_visit += self._files_of(imported, entry)
        return frozenset(found)

    def imports(self, file: str, entry: Entry) -> Iterator[Import]:
        """Yield the imports of a file without those that the program can do without."""
        tree = self._parse(file)
        if isinstance(tree, SyntaxError):
            return
        for statement, is_certain in _import_statements(
            tree.body, is_certain=True, is_entry=file == entry.file
        ):
            if isinstance(statement, ast.Import):
                for alias in statement.names:
                    yield Import(
                        file, statement.lineno, alias.name, names=(), is_certain=is_certain
                    )
                continue
            module = statement.module or ""
            if statement.level:
                module = _absolute_name(file, statement.level, module, entry.root)
            names = tuple(alias.name for alias in statement.names)
            yield Import(file, statement.lineno, module, names, is_certain)

    def _files_of(self, imported: Import, entry: Entry) -> list[str]:
        """Return the files of the program that an import executes: its packages, and the module."""
        modules = [imported.module, *(f"{imported.module}.{name}" for name in imported.names)]
        found: list[str] = []
        for module in modules:
            parts = module.split(".")
            for length in range(1, len(parts) + 1):
                path = entry.root + "/".join(parts[:length])
                package, file = f"{path}/__init__.py", f"{path}.py"
                if package in self._files.names:
                    found.append(package)
                elif file in self._files.names:
                    found.append(file)
        return found

    def _parse(self, file: str) -> ast.Module | SyntaxError:
        if file not in self._trees:
            self._trees[file] = _parsed(self._files.read(file), file, self._python)
        return self._trees[file]

    def _may_be_newer_syntax(self, error: SyntaxError) -> bool:
        """Return whether this Python is older than the runtime's, which may accept the line."""
        is_older = sys.version_info[:2] < self._python
        return is_older and bool(_NEWER_SYNTAX.search(error.text or ""))


def _parsed(content: bytes, file: str, python: tuple[int, int]) -> ast.Module | SyntaxError:
    """Return the syntax tree of a file, or the error in it. `python`: the version that reads it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # such as invalid escapes, which run
            return ast.parse(content, file, feature_version=python)
    except SyntaxError as error:
        return error
    except ValueError as error:  # a null byte
        return SyntaxError(str(error))


def _import_statements(
    body: list[ast.stmt], *, is_certain: bool, is_entry: bool = False
) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield import statements, and whether each is executed whenever the file is.

    Left out is what the program can do without: imports for type checkers, and a `try` that catches
    their failure. `is_entry`: the command runs this file, so `if __name__ == "__main__"` holds.
    """
    for statement in body:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            yield statement, is_certain
        elif isinstance(statement, ast.If):
            if not _is_type_checking(statement.test):
                is_certain_branch = is_certain and is_entry and _is_main_check(statement.test)
                yield from _import_statements(statement.body, is_certain=is_certain_branch)
            yield from _import_statements(statement.orelse, is_certain=False)
        elif isinstance(statement, ast.Try | ast.TryStar):
            if not any(_catches_import_error(handler.type) for handler in statement.handlers):
                yield from _import_statements(statement.body, is_certain=False)
            yield from _import_statements(statement.finalbody, is_certain=False)
        elif isinstance(statement, _BLOCKS):
            yield from _import_statements(statement.body, is_certain=False)


def _is_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test).endswith("TYPE_CHECKING")


def _is_main_check(test: ast.expr) -> bool:
    return ast.unparse(test) == "__name__ == '__main__'"


def _catches_import_error(caught: ast.expr | None) -> bool:
    if caught is None:
        return True
    types = caught.elts if isinstance(caught, ast.Tuple) else [caught]
    return any(ast.unparse(kind) in _CATCHES_IMPORT_ERROR for kind in types)


def _absolute_name(file: str, level: int, module: str, root: str) -> str:
    """Return the absolute name of a relative import.

    Names begin at the folder of the script, or else at the working directory.
    """
    within = file.removeprefix(root) if root and "/" in file.removeprefix(root) else file
    package = PurePosixPath(within).parent.parts
    kept = package[: len(package) - (level - 1)]
    return ".".join([*kept, *([module] if module else [])])
