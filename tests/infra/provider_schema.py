"""The real google provider's schema, from the type description that its CDK bindings ship.

`python tests/infra/provider_schema.py WHEEL OUTPUT` reduces it to what the checks need: for each resource and data
source its arguments, which of them are required, and the same for every nested block. Names are compared without
their underscores, because the bindings write them in camel case.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

_PREFIX: Final = "@cdktf/provider-google."
_DEPTH_MAX: Final = 12
_NOT_ARGUMENTS: Final = frozenset({"id"})


@dataclass(frozen=True, slots=True)
class Block:
    """`arguments`: plain name → the block behind it, None for a value."""

    arguments: dict[str, Block | None]
    required: frozenset[str]

    @staticmethod
    def read(stored: dict[str, Any]) -> Block:
        arguments = {name: Block.read(inner) if inner else None for name, inner in stored["arguments"].items()}
        return Block(arguments, frozenset(stored["required"]))


def plain(name: str) -> str:
    return name.replace("_", "").lower()


def load(path: Path) -> dict[str, Block]:
    """Plain name of a resource (`googlepubsubtopic`) or data source (`datagooglepubsubtopic`) → its schema."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {name: Block.read(block) for name, block in stored.items()}


def reduce(wheel: Path) -> dict[str, object]:
    types = _types(wheel)
    found: dict[str, object] = {}
    for fqn, kind in types.items():
        name, namespace = str(kind["name"]), str(kind.get("namespace", ""))
        if not name.endswith("Config") or plain(namespace) + "config" != name.lower():
            continue
        of_data = namespace.startswith("dataGoogle")
        found[plain(namespace) if of_data else "google" + plain(namespace)] = _block(types, fqn, 0)
    return found


def _block(types: dict[str, Any], fqn: str, depth: int) -> dict[str, object]:
    arguments: dict[str, object] = {}
    required: list[str] = []
    for prop in types[fqn].get("properties", []):
        name = plain(prop["name"])
        if name in _NOT_ARGUMENTS:
            continue
        inner = next((each for each in _names(prop["type"]) if each in types and _is_struct(types[each])), None)
        arguments[name] = _block(types, inner, depth + 1) if inner and depth < _DEPTH_MAX else None
        if not prop.get("optional"):
            required.append(name)
    return {"arguments": arguments, "required": sorted(required)}


def _is_struct(kind: dict[str, Any]) -> bool:
    return kind.get("kind") == "interface" and bool(kind.get("datatype"))


def _names(value: object) -> Iterator[str]:
    """Every type named in a type reference: `{"fqn"}`, a collection's or a union's."""
    if isinstance(value, dict):
        if isinstance(value.get("fqn"), str):
            yield value["fqn"]
        for inner in value.values():
            yield from _names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _names(inner)


def _types(wheel: Path) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(each for each in archive.namelist() if re.search(r"_jsii/.*\.jsii\.tgz$", each))
        packed = archive.read(name)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        file = tar.extractfile("package/.jsii")
        assert file is not None
        types: dict[str, Any] = json.load(file)["types"]
    return {fqn: kind for fqn, kind in types.items() if fqn.startswith(_PREFIX)}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(reduce(Path(sys.argv[1]))), encoding="utf-8")
