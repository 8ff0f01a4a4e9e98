"""What changed between two releases of the documents in which Google describes its REST APIs.

The documents are recorded: the emulators are checked with them. `make lock` records new ones, and
prints what changed of the methods that Trainmaster uses (`USED`).
"""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.conformance.changes import USED, changes
from tests.support.conformance.documents import APIS, FOLDER, document, methods
from trainmaster_emulators.checkout import ROOT


def test_used_methods_exist() -> None:
    known = {method["id"] for api in APIS for method in methods(document(api))}
    assert set(USED) <= known


def test_vanished_parameter_and_new_enum_value_are_named_and_the_rest_is_not(
    tmp_path: Path,
) -> None:
    for api in APIS:
        (tmp_path / f"{api}.json").write_bytes((FOLDER / f"{api}.json").read_bytes())
    compute = json.loads((tmp_path / "compute.v1.json").read_text(encoding="utf-8"))
    del compute["resources"]["instances"]["methods"]["list"]["parameters"]["orderBy"]
    compute["schemas"]["Operation"]["properties"]["status"]["enum"].append("PAUSED")
    (tmp_path / "compute.v1.json").write_text(json.dumps(compute), encoding="utf-8")
    found = list(changes(FOLDER, tmp_path))
    assert "- compute.v1 compute.instances.list(orderBy)" in found
    assert "+ compute.v1 compute.instances.bulkInsert response.status=PAUSED" in found
    assert all("orderBy" in line or "status=PAUSED" in line for line in found)
    assert list(changes(FOLDER, FOLDER)) == []


def test_make_lock_compares_the_documents() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    _, _, from_target = makefile.partition("\nlock:")
    target, _, _ = from_target.partition("\n\n")
    assert "tests.support.conformance.changes" in target
