"""The schema of Terraform's google provider, read from the type description in the provider's CDK
bindings.

`python tests/infra/provider_schema.py WHEEL OUTPUT` extracts what terraform needs from a provider:
for each resource and data source its attributes (type, required, computed) and nested blocks. The
bindings have names in camel case. Terraform's names are taken from the links to its registry; those
of read-only attributes are derived.
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
_MAPS: Final = {
    "cdktf.StringMap": "string",
    "cdktf.NumberMap": "number",
    "cdktf.BooleanMap": "bool",
}
_RESOLVABLE: Final = "cdktf.IResolvable"
_BINDING_PROPERTIES: Final = frozenset(
    {"tfResourceType", "internalValue", "fqn", "complexObjectIndex"}
)

CtyType = str | list[Any]
"""A type in cty's JSON form: `"string"`, `["map", "string"]`."""


@dataclass(frozen=True, slots=True)
class Attribute:
    type: CtyType
    required: bool
    computed: bool
    """Whether the attribute is read-only."""


@dataclass(frozen=True, slots=True)
class Nested:
    block: Block
    required: bool
    is_single: bool


@dataclass(frozen=True, slots=True)
class Block:
    """The attributes and nested blocks of a resource, as the provider's schema describes them."""

    attributes: dict[str, Attribute]
    blocks: dict[str, Nested]

    @staticmethod
    def read(stored: dict[str, Any]) -> Block:
        """Return the block from its JSON object."""
        return Block(
            {name: Attribute(**fields) for name, fields in stored["attributes"].items()},
            {
                name: Nested(**{**fields, "block": Block.read(fields["block"])})
                for name, fields in stored["blocks"].items()
            },
        )

    @property
    def required(self) -> set[str]:
        """Names of the attributes and blocks that a resource must have."""
        attributes = {name for name, attribute in self.attributes.items() if attribute.required}
        return attributes | {name for name, nested in self.blocks.items() if nested.required}

    def has(self, name: str) -> bool:
        """Return whether a file may set the attribute or block of this name."""
        return name in self.blocks or (
            name in self.attributes and not self.attributes[name].computed
        )


def load(path: Path) -> dict[str, Block]:
    """Return schemas by name: `google_pubsub_topic`, `data.google_project` (a data source),
    `provider`.
    """
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {name: Block.read(block) for name, block in stored.items()}


def reduce(wheel: Path) -> dict[str, object]:
    types = _types(wheel)
    schemas: dict[str, object] = {}
    for fqn, kind in types.items():
        link = re.search(r"/docs/(resources|data-sources)/(\w+)", _docs(kind))
        config = f"{fqn}Config"
        if kind["kind"] == "class" and config in types and link:
            prefix = "data." if link[1] == "data-sources" else ""
            schemas[f"{prefix}google_{link[2]}"] = _block(types, config, fqn, 0)
    return {
        **schemas,
        "provider": _block(types, f"{_PREFIX}provider.GoogleProviderConfig", readable="", depth=0),
    }


def _block(types: dict[str, Any], config: str, readable: str, depth: int) -> dict[str, object]:
    """Return a block's schema.

    `config` is the type with its arguments, `readable` the class with all attributes.
    """
    attributes: dict[str, object] = {}
    blocks: dict[str, object] = {}
    for prop in types[config].get("properties", []):
        name, required = _name(prop), not prop.get("optional")
        inner = next(
            (
                name
                for name in _type_names(prop["type"])
                if name in types and _is_struct(types[name])
            ),
            None,
        )
        if inner and depth < _DEPTH_MAX:
            block = _block(types, inner, f"{inner}OutputReference", depth + 1)
            blocks[name] = {
                "block": block,
                "required": required,
                "is_single": "fqn" in prop["type"],
            }
        else:
            attributes[name] = {
                "type": _type(prop["type"]),
                "required": required,
                "computed": False,
            }
    for prop in types.get(readable, {}).get("properties", []):
        name = _name(prop)
        if (
            prop.get("immutable")
            and not _belongs_to_bindings(prop)
            and name not in attributes
            and name not in blocks
        ):
            attributes[name] = {"type": _type(prop["type"]), "required": False, "computed": True}
    return {"attributes": attributes, "blocks": blocks}


def _belongs_to_bindings(prop: dict[str, Any]) -> bool:
    return (
        prop["name"] in _BINDING_PROPERTIES
        or prop["name"].endswith("Input")
        or bool(prop.get("static"))
    )


def _name(prop: dict[str, Any]) -> str:
    link = re.search(r"#(\w+)\}?\s*$", _docs(prop))
    return link[1] if link else re.sub(r"(?<!^)(?=[A-Z])", "_", prop["name"]).lower()


def _docs(described: dict[str, Any]) -> str:
    docs = described.get("docs", {})
    return " ".join([docs.get("summary", ""), docs.get("remarks", ""), docs.get("see", "")])


def _type(reference: dict[str, Any]) -> CtyType:
    if "primitive" in reference:
        return _PRIMITIVES.get(reference["primitive"], "dynamic")
    if "collection" in reference:
        inner = _type(reference["collection"]["elementtype"])
        return ["map" if reference["collection"]["kind"] == "map" else "list", inner]
    if "union" in reference:
        return next(
            _type(member)
            for member in reference["union"]["types"]
            if member.get("fqn") != _RESOLVABLE
        )
    if reference["fqn"] == _RESOLVABLE:
        return "bool"
    return ["map", _MAPS[reference["fqn"]]] if reference["fqn"] in _MAPS else "dynamic"


def _is_struct(kind: dict[str, Any]) -> bool:
    return kind.get("kind") == "interface" and bool(kind.get("datatype"))


def _type_names(value: object) -> Iterator[str]:
    """Yield every type in a type reference: `{"fqn"}`, a collection's or a union's."""
    if isinstance(value, dict):
        if isinstance(value.get("fqn"), str):
            yield value["fqn"]
        for inner in value.values():
            yield from _type_names(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _type_names(inner)


def _types(wheel: Path) -> dict[str, Any]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(path for path in archive.namelist() if re.search(r"_jsii/.*\.jsii\.tgz$", path))
        packed = archive.read(name)
    with tarfile.open(fileobj=io.BytesIO(packed)) as tar:
        file = tar.extractfile("package/.jsii")
        assert file is not None
        types: dict[str, Any] = json.load(file)["types"]
    return {fqn: kind for fqn, kind in types.items() if fqn.startswith(_PREFIX)}


if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps(reduce(Path(sys.argv[1]))), encoding="utf-8")
