"""A folder in place of a public bucket: its files are objects, and writes do not reach
the folder.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from tests.support.stack import reserved_ports
from trainmaster_emulators.process import service
from trainmaster_emulators.process.backends import require_backend
from trainmaster_emulators.process.loopback import call
from trainmaster_emulators.services import storage
from trainmaster_local.cli.commands import read_public_buckets

OBJECTS = "/storage/v1/b/cloud-samples-data/o"


@pytest.mark.emulator
def test_bucket_contains_the_files_of_its_folder_and_writes_stay_in_the_stack(
    tmp_path: Path,
) -> None:
    folder, root = tmp_path / "samples", tmp_path / "root"
    (folder / "census").mkdir(parents=True)
    (folder / "census" / "data.csv").write_text("a,b\n")
    with reserved_ports() as ports:
        emulator = storage.service(require_backend(), root, *ports.take_blocked_addresses(2))
        with service.run_alone(emulator, tmp_path / "log"):
            storage.create_bucket_from(emulator.address, "p", "cloud-samples-data", folder)
            listed = call(emulator.address, "GET", OBJECTS)
            upload = f"/upload{OBJECTS}?uploadType=media&name=census/data.csv"
            call(emulator.address, "POST", upload, b"changed")
    assert [item["name"] for item in listed["items"]] == ["census/data.csv"]
    assert (folder / "census" / "data.csv").read_text() == "a,b\n"


def test_option_names_a_bucket_and_its_folder(tmp_path: Path) -> None:
    assert read_public_buckets([f"cloud-samples-data={tmp_path}"], {"b"}) == {
        "cloud-samples-data": tmp_path
    }


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("cloud-samples-data", "must be NAME=DIR"),
        ("=samples", "must be NAME=DIR"),
        ("Not A Bucket=/", "must be NAME=DIR"),
        ("../jobs=/", "must be NAME=DIR"),
        ("own-bucket=/", "already has a bucket"),
        ("samples=/does/not/exist", "is not a folder"),
    ],
)
def test_wrong_option_is_refused_with_the_reason(option: str, problem: str) -> None:
    with pytest.raises(typer.BadParameter, match=problem):
        read_public_buckets([option], {"own-bucket"})
