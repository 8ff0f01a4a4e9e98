"""Configuration that the stack writes for clients, functions and VMs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from emulators.services import pubsub
from emulators.stack import client_configuration, runtime_images, state
from emulators.stack.state import FUNCTIONS, Endpoints, StackConfig, StackError
from shared.jobspec.catalog.runtimes import RUNTIMES

ENDPOINTS = Endpoints(
    firestore="h:1",
    pubsub="h:2",
    storage="h:3",
    storage_tls="h:4",
    compute="h:5",
    proxy="h:6",
    logging="h:7",
    iam="h:8",
    api="h:9",
)


def test_exported_values_are_quoted_for_the_shell() -> None:
    assert (
        client_configuration.export_lines({"A": "it's $HOME", "B": "plain"})
        == "export A='it'\"'\"'s $HOME'\nexport B=plain\n"
    )


def test_functions_get_the_documented_settings() -> None:
    variables = client_configuration.application_environment(StackConfig(project="p", bucket="b"), ENDPOINTS)
    assert variables == {
        "TRAINMASTER_PROJECT": "p",
        "TRAINMASTER_BUCKET": "b",
        "TRAINMASTER_ADDRESSING": "emulator",
        "TRAINMASTER_WORKER_SERVICE_ACCOUNT": "trainmaster-worker@p.iam.gserviceaccount.com",
        "TRAINMASTER_COMPUTE_ENDPOINT": "http://h:5",
        "GOOGLE_CLOUD_PROJECT": "p",
        "FIRESTORE_EMULATOR_HOST": "h:1",
        "PUBSUB_EMULATOR_HOST": "h:2",
        "STORAGE_EMULATOR_HOST": "http://h:3",
        "TRAINMASTER_LOGGING_ENDPOINT": "http://h:7",
        "TRAINMASTER_IDENTITY_KEYS": "http://h:5/emulator/v1/certs",
        "TRAINMASTER_IAM_ENDPOINT": "http://h:8",
        "TRAINMASTER_IAM_ACCOUNTS_ENDPOINT": "http://h:8",
        "TRAINMASTER_IAM_PEOPLE_ENDPOINT": "http://h:8",
        "TRAINMASTER_TPU": "true",
        "TRAINMASTER_TPU_ENDPOINT": "http://h:5",
    }


def test_each_function_has_a_topic() -> None:
    assert [pubsub.topic_of(name) for name in FUNCTIONS] == [
        "trainmaster-upload",
        "trainmaster-submit",
        "trainmaster-vm-ready",
        "trainmaster-replica-exit",
        "trainmaster-maintenance",
        "trainmaster-provision",
        "trainmaster-tune",
        "trainmaster-sweep",
    ]


def test_built_runtime_replaces_its_image_and_is_the_default(tmp_path: Path) -> None:
    for name in ("pytorch", "tensorflow"):
        (tmp_path / name).mkdir()
    (tmp_path / "pytorch" / runtime_images.STAMP).touch()
    family = RUNTIMES["pytorch-2.13"].image.split("/")[-1]
    assert runtime_images.image_table(tmp_path) == {
        family: str(tmp_path / "pytorch"),
        "default": str(tmp_path / "pytorch"),
    }


def test_vms_use_the_stacks_own_python_when_no_runtime_is_built(tmp_path: Path) -> None:
    runtime_images.write_image_table(tmp_path / "none", tmp_path / "table.json")
    assert json.loads((tmp_path / "table.json").read_text()) == {"default": sys.prefix}


def test_truncated_state_file_is_a_stack_error(tmp_path: Path) -> None:
    (tmp_path / state.STATE_FILE).write_text('{"id": "x', encoding="utf-8")
    with pytest.raises(StackError, match=r"stack\.json: cannot read the stack's state"):
        state.read(tmp_path)
