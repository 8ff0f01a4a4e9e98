"""The Python files of a program: which of them it imports, and which are not valid Python.

The checks before a submission read them, so that a job does not fail for these reasons minutes
after its VMs were paid for. Nothing is imported or executed. Because an error refuses the job, an
import counts as certain only if no branch, loop or handler can avoid it.

Whoever submits a job chooses the bytes: what is parsed has a limit, and what Python's parser cannot
hold is not judged.
"""

from __future__ import annotations

import ast
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import PurePosixPath
from typing import Final, TypeVar

from trainmaster.program_files.findings import ProgramFiles, ProgramFinding, may_fail, must_fail

FILE_BYTES_MAX: Final = 256 << 10
"""A larger file is not judged: it was not written by hand. Its tree may need 450 times as much
memory.
"""
PROGRAM_BYTES_MAX: Final = 16 << 20
"""Most bytes of a program that are parsed. One MiB takes about a second, and five at worst."""
_TOKENS_MAX: Final = 80_000
"""A file with more words and signs is not judged. A usual one of `FILE_BYTES_MAX` has 60,000; the
time and the memory of Python's parser depend on them, so that `a;a;a;…` costs four times as much.
"""
_TOKEN: Final = re.compile(rb"\w+|[^\w\s]")
_BRACES_MAX: Final = 4_000
_LONG_NAME: Final = re.compile(rb"(?:\.[\s\\]*+\w++[\s\\]*+){100}")
"""A file with more braces, or with a dotted name of a hundred parts (`_LONG_NAME`), is not judged:
for f-strings and imports, the time of Python's parser grows with the square of their number.
"""
_DEPTH_MAX: Final = 32
"""Names in one module's name, such as three in `a.b.c`, that are looked up."""
_LINE_MAX: Final = 80
"""Characters of a line that a message shows."""
_LINE_JUDGED_MAX: Final = 2_000
"""Longer lines may have syntax of any version: to search them may take minutes."""
_NEWER_SYNTAX: Final = (
    (
        (3, 12),  # nested quotes in f-strings, `type`, type parameters
        re.compile(
            r"\b[rR]?[fF][rR]?[\"']|^f-string:|^\s*type\s+\w+"
            r"|^\s*(async\s+)?(def|class)\s+\w+\s*\["
        ),
    ),
    (
        (3, 14),  # template strings, `except A, B:`
        re.compile(r"\b[rR]?[tT][rR]?[\"']|^\s*except\*?\s+[\w.]+\s*,"),
    ),
    (
        (3, 15),  # lazy imports, unpacking in comprehensions
        re.compile(r"^\s*lazy\s+(from|import)\b|\*.*\bfor\b.*\bin\b"),
    ),
)
"""Version of Python → lines that it accepts and earlier ones do not, and messages about them.

Source: "What's New in Python" of each version.
"""
_UNKNOWN_ENCODING: Final = "unknown encoding"
"""Beginning of the parser's message. A package may bring the encoding, as `future-fstrings` does.
"""
_BLOCKS: Final = (ast.With, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
"""Statements whose bodies are searched for imports that are not certain. Loops and `match` rarely
contain any.
"""
_CATCHES_IMPORT_ERROR: Final = {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"}
_PARSER: Final = threading.Lock()
"""Held while a file is parsed: filters of warnings belong to the process, and the trees of files
that are parsed at once would need their memory at once.
"""
_Read = TypeVar("_Read")


class _When(Enum):
    """When a file executes an import."""

    ALWAYS = auto()
    IF_STARTED = auto()
    """If the command runs the file: below `if __name__ == "__main__"`."""
    SOMETIMES = auto()


@dataclass(frozen=True, slots=True)
class _Statement:
    """An import statement for one module."""

    line: int
    module: str
    level: int
    """Number of leading dots."""
    names: tuple[str, ...]
    when: _When


@dataclass(frozen=True, slots=True)
class _Parsed:
    """What is kept of a file: its syntax tree may be 450 times as large as the file."""

    imports: tuple[_Statement, ...] = ()
    error: SyntaxError | None = None


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

    def __init__(
        self, files: ProgramFiles, python: str, bytes_max: int = PROGRAM_BYTES_MAX
    ) -> None:
        """`python`: version of the runtime, such as 3.12; empty if it is not known. `bytes_max`:
        most bytes that are parsed, in all files together; further files are not judged.
        """
        self._python = version_pair(python) if python else None
        self._files = files
        self._bytes_left = bytes_max
        self._parsed: dict[str, _Parsed] = {}

    def check_syntax(
        self, entry: Entry | None, others: Iterable[str] = ()
    ) -> Iterator[ProgramFinding]:
        """Yield the syntax errors of the files that the entry may import, and of `others`.

        Only an error in a file that the program imports in every run is certain to end it.
        """
        certain = self.closure(entry, certain_only=True) if entry else frozenset()
        possible = self.closure(entry, certain_only=False) if entry else frozenset()
        for file in sorted(possible.union(name for name in others if name.endswith(".py"))):
            error = self._parse(file).error
            if error is None:
                continue
            problem = f"{file}:{error.lineno or 1} is not valid Python: {error.msg}"
            text = (error.text or "").strip()[:_LINE_MAX]
            remedy = f"correct the line {text!r}" if text else "correct the file"
            is_certain = file in certain and not self._may_be_valid_there(error)
            yield must_fail(problem, remedy) if is_certain else may_fail(problem, remedy)

    def closure(self, entry: Entry, *, certain_only: bool) -> frozenset[str]:
        """Return the files that the entry imports, directly or through others, itself included."""
        found: set[str] = set()
        to_visit = [entry.file, *self._packages_of(entry)]
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
        for found in self._parse(file).imports:
            is_started = file == entry.file and found.when is _When.IF_STARTED
            is_certain = found.when is _When.ALWAYS or is_started
            module = found.module
            if found.level:
                module = _absolute_name(file, found.level, module, entry.root)
            yield Import(file, found.line, module, found.names, is_certain)

    def _packages_of(self, entry: Entry) -> list[str]:
        """Return the files of the packages that the entry is in, which `python -m` imports first.

        A script has none: Python searches its own folder.
        """
        folders = entry.file.removeprefix(entry.root).split("/")[:-1]
        paths = ("/".join(folders[:length]) for length in range(1, len(folders) + 1))
        files = (f"{entry.root}{path}/__init__.py" for path in paths)
        return [file for file in files if file in self._files.names]

    def _files_of(self, imported: Import, entry: Entry) -> list[str]:
        """Return the files of the program that an import executes: its packages, and the module."""
        parts = imported.module.split(".")[:_DEPTH_MAX]
        paths = [entry.root + "/".join(parts[:length]) for length in range(1, len(parts) + 1)]
        paths += [f"{paths[-1]}/{name}" for name in imported.names]
        found: list[str] = []
        for path in paths:
            package, file = f"{path}/__init__.py", f"{path}.py"
            if package in self._files.names:
                found.append(package)
            elif file in self._files.names:
                found.append(file)
        return found

    def _parse(self, file: str) -> _Parsed:
        if file not in self._parsed:
            content = self._files.read(file)
            is_judged = len(content) <= self._bytes_left and _is_quickly_parsed(content)
            if is_judged:
                self._bytes_left -= len(content)
            self._parsed[file] = _parsed(content, self._python) if is_judged else _Parsed()
        return self._parsed[file]

    def _may_be_valid_there(self, error: SyntaxError) -> bool:
        """Return whether the runtime's Python may accept what this one does not."""
        line = error.text or ""
        if error.msg.startswith(_UNKNOWN_ENCODING) or len(line) > _LINE_JUDGED_MAX:
            return True
        newer = [
            lines
            for version, lines in _NEWER_SYNTAX
            if sys.version_info[:2] < version and (self._python is None or version <= self._python)
        ]
        return any(lines.search(text) for lines in newer for text in (line, error.msg))


def version_pair(python: str) -> tuple[int, int]:
    """Return (3, 12) for `3.12` or `3.12.4`."""
    major, minor = python.split(".")[:2]
    return int(major), int(minor)


def read_tree(
    content: bytes, read: Callable[[ast.Module], _Read], python: tuple[int, int] | None = None
) -> _Read:
    """Return what `read` finds in the syntax tree of a source, which is not kept.

    `python`: the version that reads it. None: not known; then the grammar is this Python's. Raises
    the parser's errors: SyntaxError; ValueError for a null byte; RecursionError or MemoryError if
    the source is nested too deeply for this Python's parser.
    """
    with _PARSER, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as invalid escapes, which run
        return read(ast.parse(content, feature_version=python))


def _is_quickly_parsed(content: bytes) -> bool:
    return (
        len(content) <= FILE_BYTES_MAX
        and sum(1 for _ in _TOKEN.finditer(content)) <= _TOKENS_MAX
        and content.count(b"{") <= _BRACES_MAX
        and _LONG_NAME.search(content) is None
    )


def _parsed(content: bytes, python: tuple[int, int] | None) -> _Parsed:
    """Return the imports of a file, or the error in it."""
    try:
        return read_tree(content, _imports_of, python)
    except SyntaxError as error:
        return _Parsed(error=error)
    except ValueError as error:
        return _Parsed(error=SyntaxError(str(error)))
    except (RecursionError, MemoryError):
        return _Parsed()


def _imports_of(tree: ast.Module) -> _Parsed:
    return _Parsed(tuple(_import_statements(tree.body, _When.ALWAYS)))


def _import_statements(body: list[ast.stmt], when: _When) -> Iterator[_Statement]:
    """Yield import statements. `when`: when the body is executed.

    Left out is what the program can do without: imports for type checkers, and a `try` that catches
    their failure.
    """
    for statement in body:
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield _Statement(statement.lineno, alias.name, level=0, names=(), when=when)
        elif isinstance(statement, ast.ImportFrom):
            names = tuple(alias.name for alias in statement.names)
            module = statement.module or ""
            yield _Statement(statement.lineno, module, statement.level, names, when)
        elif isinstance(statement, ast.If):
            if not _is_type_checking(statement.test):
                is_started = when is _When.ALWAYS and _is_main_check(statement.test)
                branch = _When.IF_STARTED if is_started else _When.SOMETIMES
                yield from _import_statements(statement.body, branch)
            yield from _import_statements(statement.orelse, _When.SOMETIMES)
        elif isinstance(statement, ast.Try | ast.TryStar):
            if not any(_catches_import_error(handler.type) for handler in statement.handlers):
                yield from _import_statements(statement.body, _When.SOMETIMES)
            yield from _import_statements(statement.finalbody, _When.SOMETIMES)
        elif isinstance(statement, _BLOCKS):
            yield from _import_statements(statement.body, _When.SOMETIMES)


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
    path_in_root = file.removeprefix(root)
    is_in_package = "/" in path_in_root
    package = PurePosixPath(path_in_root if is_in_package else file).parent.parts
    kept = package[: len(package) - (level - 1)]
    return ".".join([*kept, *([module] if module else [])])
