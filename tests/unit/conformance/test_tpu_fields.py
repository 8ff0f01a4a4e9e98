"""The emulator of Cloud TPU has the fields of each version of the API, and no others.

The documented fields are those of Google's discovery documents. A mask is a tree of the emulator's
fields, one for each version.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from tests.support.conformance.documents import Json, document
from trainmaster_emulators.machines.field_mask import Mask, select
from trainmaster_emulators.rest.api_errors import StatusError
from trainmaster_emulators.tpu.fields import NODE, QUEUED, V2, V2_ALPHA, check

OPAQUE = {"state", "upcomingMaintenance", "symptoms", "spot", "error"}
"""Messages that the emulator does not look into."""


def fields_of(mask: Mask, at: str = "") -> Iterator[str]:
    """Yield the paths of the mask's fields, such as `node.labels`. `at`: what they begin with."""
    for name, nested in mask.items():
        yield f"{at}{name}"
        yield from fields_of(nested, f"{at}{name}.")


def documented(schemas: Json, name: str, at: str = "") -> Iterator[str]:
    """Yield the paths of the documented fields of a message."""
    for field, schema in schemas[name]["properties"].items():
        yield f"{at}{field}"
        reference = (schema.get("items") or schema).get("$ref")
        if reference and field not in OPAQUE:
            yield from documented(schemas, reference, f"{at}{field}.")


@pytest.mark.parametrize(("kind", "masks"), [("Node", NODE), ("QueuedResource", QUEUED)])
@pytest.mark.parametrize("version", [V2, V2_ALPHA])
def test_version_has_the_documented_fields(
    kind: str, masks: Mapping[str, Mask], version: str
) -> None:
    schemas = document(f"tpu.{version}")["schemas"]
    assert sorted(fields_of(masks[version])) == sorted(documented(schemas, kind))


def test_fields_of_the_alpha_version_are_refused_and_hidden_at_every_depth() -> None:
    node = {"labels": {"autocheckpointEnabled": "a"}, "schedulingConfig": {"spot": True}}
    alpha_node = {
        **node,
        "autocheckpointEnabled": True,
        "schedulingConfig": {"spot": True, "reservationName": "r"},
    }
    alpha = {
        "tpu": {"nodeSpec": [{"nodeId": "q", "node": alpha_node}]},
        "runDuration": {"maxRunDuration": "1s"},
    }
    assert check(alpha, QUEUED[V2_ALPHA], "queued_resource") == alpha
    assert select(alpha, QUEUED[V2]) == {"tpu": {"nodeSpec": [{"nodeId": "q", "node": node}]}}
    with pytest.raises(StatusError, match='Unknown name "runDuration" at "queued_resource"'):
        check({"runDuration": {}}, QUEUED[V2], "queued_resource")
    with pytest.raises(
        StatusError,
        match=r'reservationName" at "queued_resource\.tpu\.nodeSpec\.node\.schedulingConfig"',
    ):
        check({"tpu": alpha["tpu"]}, QUEUED[V2], "queued_resource")
