"""What a package requires, as its metadata or its build files say."""

from __future__ import annotations

import ast
import configparser
import email
import tomllib
from importlib.metadata import Distribution
from pathlib import Path
from typing import Final

from trainmaster.program_files.archives import Archive
from trainmaster.program_files.source_files import read_tree, version_pair

REQUIREMENTS_MAX: Final = 500
"""A package with more requirements is not judged."""
REQUIREMENT_MAX: Final = 500
"""Characters of the longest requirement that is judged. Others read it in messages."""
_EGG_INFO: Final = ".egg-info/PKG-INFO"
_FINAL_METADATA: Final = (2, 2)
"""From this version on, the metadata of a source distribution names all requirements, or says that
the build determines them. Source: PEP 643.
"""
_UNREADABLE: Final = (
    ValueError,  # also UnicodeDecodeError and TOMLDecodeError
    KeyError,
    TypeError,
    AttributeError,
    SyntaxError,
    RecursionError,
    MemoryError,
    configparser.Error,
)
"""Errors that metadata and build files of an unusual form raise."""


class _Metadata(Distribution):
    """A package that is not installed, for Python's own reader of metadata."""

    def __init__(self, texts: dict[str, str]) -> None:
        self._texts = texts

    def read_text(self, filename: str) -> str:
        return self._texts.get(filename, "")

    def locate_file(self, path: object) -> Path:
        raise FileNotFoundError(path)


def requirements_of(archive: Archive) -> list[str] | None:
    """Return the requirements of a package, with their markers; None if they are not known."""
    try:
        found = _requirements(archive)
    except _UNREADABLE:
        return None
    are_usual = all(len(text) <= REQUIREMENT_MAX and text.isprintable() for text in found)
    return found if are_usual and len(found) <= REQUIREMENTS_MAX else None


def _requirements(archive: Archive) -> list[str]:
    """Raise an error of _UNREADABLE if the requirements are not known."""
    texts = _metadata(archive)
    if texts:
        return _Metadata(texts).requires or []
    names = [name for name in _BUILD_FILES if f"{archive.top}{name}" in archive.files]
    if not names:
        raise ValueError("the package has neither metadata nor a build file")
    found = [_BUILD_FILES[name](_text(f"{archive.top}{name}", archive)) for name in names]
    return next((texts for texts in found if texts is not None), [])


def _metadata(archive: Archive) -> dict[str, str]:
    """Return the files of the metadata that name the requirements; none if they do not."""
    for name in sorted(archive.files):
        folder, _, file = name.rpartition("/")
        if not archive.is_source and file == "METADATA" and folder.endswith(".dist-info"):
            return {file: _text(name, archive)}
        if archive.is_source and name.endswith(_EGG_INFO):
            # setuptools writes requires.txt only if there are requirements.
            requires = f"{folder}/requires.txt"
            return {
                "PKG-INFO": _text(name, archive),
                "requires.txt": _text(requires, archive) if requires in archive.files else "",
            }
    name = f"{archive.top}PKG-INFO"
    if not archive.is_source or name not in archive.files:
        return {}
    text = _text(name, archive)
    headers = email.message_from_string(text)
    is_final = version_pair(headers["Metadata-Version"]) >= _FINAL_METADATA
    dynamic = [value.lower() for value in headers.get_all("Dynamic", [])]
    return {"PKG-INFO": text} if is_final and "requires-dist" not in dynamic else {}


def _text(name: str, archive: Archive) -> str:
    if name not in archive.contents:
        raise ValueError(f"{name} was not read")
    return archive.contents[name].decode("utf-8")


def _of_setup(text: str) -> list[str] | None:
    """Return `install_requires` of a setup.py; None if it has no such argument.

    Raises ValueError if it is not a list of literals.
    """

    def find(tree: ast.Module) -> list[str] | None:
        constants: dict[str, ast.expr] = {}
        for statement in tree.body:
            if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
                constants[statement.targets[0].id] = statement.value
        calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
        (call,) = (call for call in calls if ast.unparse(call.func).split(".")[-1] == "setup")
        arguments = {keyword.arg: keyword.value for keyword in call.keywords}
        if None in arguments:
            raise ValueError("setup() gets arguments that are not literal")
        value = arguments.get("install_requires")
        if value is None:
            return None
        if isinstance(value, ast.Name):
            value = constants[value.id]
        return _lines(ast.literal_eval(value))

    return read_tree(text.encode(), find)


def _of_pyproject(text: str) -> list[str] | None:
    """Return the dependencies of a project; None if setuptools finds them elsewhere.

    Raises ValueError if another tool determines them.
    """
    document = tomllib.loads(text)
    project = document.get("project")
    if project is None:
        backend = document.get("build-system", {}).get("build-backend", "setuptools")
        if not backend.startswith("setuptools"):
            raise ValueError(f"the requirements are in the form of {backend}")
        return None
    if "dependencies" in project.get("dynamic", ()):
        raise ValueError("the build determines the requirements")
    return _lines(project.get("dependencies", []))


def _of_setup_cfg(text: str) -> list[str] | None:
    parser = configparser.ConfigParser(interpolation=None)
    parser.read_string(text)
    value = parser.get("options", "install_requires", fallback=None)
    if value is None:
        return None
    if value.strip().startswith("file:"):
        raise ValueError("the requirements are in another file")
    return _lines(value)


def _lines(value: object) -> list[str]:
    """Return the requirements in a list, or in lines of a text. Raises ValueError for others."""
    lines = value.splitlines() if isinstance(value, str) else value
    if not isinstance(lines, list | tuple) or not all(isinstance(line, str) for line in lines):
        raise ValueError("no list of requirements")
    return [line.strip() for line in lines if line.strip()]


_BUILD_FILES: Final = {
    "setup.py": _of_setup,
    "pyproject.toml": _of_pyproject,
    "setup.cfg": _of_setup_cfg,
}
"""File → reader of its requirements, which returns None if the file names none."""
