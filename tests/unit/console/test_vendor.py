"""Vendored browser files are those that were released, and their licences are beside them."""

from __future__ import annotations

import hashlib
import tomllib

from trainmaster.console.rendering import STATIC

VENDOR = STATIC / "vendor"


def test_vendored_files_have_their_released_hashes_and_licences() -> None:
    listed = tomllib.loads((VENDOR / "VENDOR.toml").read_text(encoding="utf-8"))
    for name, file in listed.items():
        assert hashlib.sha256((VENDOR / file["file"]).read_bytes()).hexdigest() == file["sha256"]
        assert (VENDOR / f"{name}.LICENSE").read_text(encoding="utf-8").strip()
    assert {file["file"] for file in listed.values()} == {path.name for path in VENDOR.glob("*.js")}
