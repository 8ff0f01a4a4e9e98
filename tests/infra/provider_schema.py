"""The real google provider's schema, from the type description that its CDK bindings ship.

`python tests/infra/provider_schema.py WHEEL OUTPUT` reduces it to what terraform asks of a provider: for each resource
and data source its attributes (type, required, computed), and the same for every nested block. The bindings write names
in camel case; terraform's own are in the links to its registry, and are derived for what can only be read.
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
_PRIMITIVES: Final = {"string": "string", "number": "number", "boolean": "bool"}
_MAPS: Final = {"cdktf.StringMap": "string", "cdktf.NumberMap": "number", "cdktf.BooleanMap": "bool"}
_RESOLVABLE: Final = "cdktf.IResolvable"
_OF_BINDINGS: Final = frozenset({"tfResourceType", "internalValue", "fqn", "complexObjectIndex"})

CtyType = str | list[Any]
"""As cty writes types in JSON: `"string"`, `["map", "string"]`."""


@dataclass(frozen=True, slots=True)
class Attribute:
    type: CtyType
    required: bool
    computed: bool
    """Can only be read."""


@dataclass(frozen=True, slots=True)
class Nested:
    block: Block
    required: bool
    is_single: bool


@dataclass(frozen=True, slots=True)
class Block:
    attributes: dict[str, Attribute]
    blocks: dict[str, Nested]

    @staticmethod
    def read(stored: dict[str, Any]) -> Block:
        return Block(
            {name: Attribute(**each) for name, each in stored["attributes"].items()},
            {name: Nested(**{**each, "block": Block.read(each["block"])}) for name, each in stored["blocks"].items()},
        )

    @property
    def required(self) -> set[str]:
        attributes = {name for name, each in self.attributes.items() if each.required}
        return attributes | {name for name, each in self.blocks.items() if each.required}

    def has(self, name: str) -> bool:
        return name in self.blocks or (name in self.attributes and not self.attributes[name].computed)


def load(path: Path) -> dict[str, Block]:
    """Name of a resource (`google_pubsub_topic`), data source (`data.google_project`) or `provider` → its schema."""
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {name: Block.read(block) for name, block in stored.items()}


def reduce(wheel: Path) -> dict[str, object]:
    types = _types(wheel)
    found: dict[str, object] = {}
    for fqn, kind in types.items():
        own = re.search(r"/docs/(resources|data-sources)/(\w+)", _docs(kind))
        config = f"{fqn}Config"
        if kind["kind"] == "class" and config in types and own:
            prefix = "data." if own[1] == "data-sources" else ""
            found[f"{prefix}google_{own[2]}"] = _block(types, config, fqn, 0)
    return {**found, "provider": _block(types, f"{_PREFIX}provider.GoogleProviderConfig", "", 0)}


def _block(types: dict[str, Any], config: str, readable: str, depth: int) -> dict[str, object]:
    """`config`: what can be written; `readable`: the class through which everything can be read."""
    attributes: dict[str, object] = {}
    blocks: dict[str, object] = {}
    for prop in types[config].get("properties", []):
        name, required = _name(prop), not prop.get("optional")
        inner = next((each for each in _names(prop["type"]) if each in types and _is_struct(types[each])), None)
        if inner and depth < _DEPTH_MAX:
            block = _block(types, inner, f"{inner}OutputReference", depth + 1)
            blocks[name] = {"block": block, "required": required, "is_single": "fqn" in prop["type"]}
        else:
            attributes[name] = {"type": _type(prop["type"]), "required": required, "computed": False}
    for prop in types.get(readable, {}).get("properties", []):
        name = _name(prop)
        if prop.get("immutable") and not _is_of_bindings(prop) and name not in attributes and name not in blocks:
            attributes[name] = {"type": _type(prop["type"]), "required": False, "computed": True}
    return {"attributes": attributes, "blocks": blocks}


def _is_of_bindings(prop: dict[str, Any]) -> bool:
    return prop["name"] in _OF_BINDINGS or prop["name"].endswith("Input") or bool(prop.get("static"))


def _name(prop: dict[str, Any]) -> str:
    link = re.search(r"#(\w+)\}?\s*$", _docs(prop))
    return link[1] if link else re.sub(r"(?<!^)(?=[A-Z])", "_", prop["name"]).lower()


def _docs(described: dict[str, Any]) -> str:
    docs = described.get("docs", {})
    return " ".join([docs.get("summary", ""), docs.get("remarks", ""), docs.get("see", "")])


def _type(said: dict[str, Any]) -> CtyType:
    if "primitive" in said:
        return _PRIMITIVES.get(said["primitive"], "dynamic")
    if "collection" in said:
        inner = _type(said["collection"]["elementtype"])
        return ["map" if said["collection"]["kind"] == "map" else "list", inner]
    if "union" in said:
        return next(_type(each) for each in said["union"]["types"] if each.get("fqn") != _RESOLVABLE)
    if said["fqn"] == _RESOLVABLE:
        return "bool"
    return ["map", _MAPS[said["fqn"]]] if said["fqn"] in _MAPS else "dynamic"


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
