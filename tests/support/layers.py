"""Two contract types for import-linter.

Its own types treat an external package as a whole, such as all of `google`.

Both types read the import statements, so that imports inside functions count as well.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class StandardLibraryOnly(Contract):
    """`source_modules` directly import only each other and the standard library."""

    type_name = "standard_library_only"

    source_modules = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        del verbose
        sources = [str(name) for name in self.source_modules]  # type: ignore[attr-defined]
        wrong = [
            (module, imported)
            for source in sources
            for module in _within(graph, source)
            for imported in _imports(module)
            if imported.split(".")[0] not in sys.stdlib_module_names
            and not any(_is_under(imported, other) for other in sources)
        ]
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def render_broken_contract(self, check: ContractCheck) -> None:
        _print(check)


class SoleImporter(Contract):
    """Only `importers` import the external package `external`."""

    type_name = "sole_importer"

    external = fields.StringField()
    importers = fields.ListField(subfield=fields.StringField())

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        del verbose
        external = str(self.external)
        importers = [str(name) for name in self.importers]  # type: ignore[attr-defined]
        wrong = [
            (module, imported)
            for module in sorted(graph.modules)
            if not any(_is_under(module, importer) for importer in importers)
            for imported in _imports(module)
            if _is_under(imported, external)
        ]
        return ContractCheck(kept=not wrong, metadata={"wrong": wrong})

    def render_broken_contract(self, check: ContractCheck) -> None:
        _print(check)


def _print(check: ContractCheck) -> None:
    for module, imported in check.metadata["wrong"]:
        output.print_error(f"{module} imports {imported}", bold=False)


def _within(graph: ImportGraph, package: str) -> list[str]:
    return sorted(module for module in graph.modules if _is_under(module, package))


def _is_under(module: str, package: str) -> bool:
    return module == package or module.startswith(package + ".")


def _imports(module: str) -> Iterator[str]:
    """Yield the dotted names that a module of this project imports: `from a import b` gives `a.b`.

    Yields nothing for a module of an external package.
    """
    path = Path(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not source.is_file():
        return
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
