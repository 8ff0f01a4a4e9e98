"""Partial responses of the emulator."""

from __future__ import annotations

from typing import Any

import pytest
from werkzeug.datastructures import Headers
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Request

from trainmaster_emulators.machines.compute_errors import ApiError
from trainmaster_emulators.machines.field_mask import parse_mask, select_fields

BODY: dict[str, Any] = {
    "kind": "list",
    "nextPageToken": "t",
    "items": {
        "zones/a": {
            "instances": [
                {"name": "vm", "metadata": {"fingerprint": "f", "items": ["large"]}, "id": "1"}
            ]
        },
        "zones/b": {"warning": {"code": "NO_RESULTS_ON_PAGE"}},
    },
}


def select(mask: str) -> Any:
    return select_fields(
        Request(EnvironBuilder(headers=Headers([("X-Goog-FieldMask", mask)])).get_environ()), BODY
    )


def test_mask_selects_through_maps_and_lists() -> None:
    assert select("items/*/instances(name,metadata/fingerprint),nextPageToken") == {
        "nextPageToken": "t",
        "items": {
            "zones/a": {"instances": [{"name": "vm", "metadata": {"fingerprint": "f"}}]},
            "zones/b": {},
        },
    }


def test_selected_field_is_whole() -> None:
    assert select("items") == {"items": BODY["items"]}
    assert select("*") == BODY


def test_query_parameter_is_a_mask() -> None:
    assert select_fields(
        Request(EnvironBuilder(query_string="fields=kind").get_environ()), BODY
    ) == {"kind": "list"}


@pytest.mark.parametrize("mask", ["a(b", "a)", "a,,b", "a/", "(a)", "a b;c"])
def test_malformed_mask_is_refused(mask: str) -> None:
    with pytest.raises(ApiError):
        parse_mask(mask)
