"""The small decisions of the stack, without a stack."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from emulators.services import pubsub
from emulators.stack import backends, client_configuration, processes, runtime_images, state
from emulators.stack.backends import BackendKind
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


def test_two_stacks_never_choose_the_same_port() -> None:
    first, second = processes.Ports(), processes.Ports()
    taken = [[ports.take() for _ in range(13)] for ports in (first, second)]
    first.close()
    second.close()
    assert not set(taken[0]) & set(taken[1])


def test_a_port_somebody_listens_on_is_left_alone() -> None:
    ports = processes.Ports()
    one = ports.take()
    with socket.create_server(("127.0.0.1", one + 1)):
        assert ports.take() > one + 1
    ports.close()


def test_a_claim_of_ports_ends_with_its_owner() -> None:
    claims = [processes.Ports() for _ in range(20)]
    for each in claims:
        each.close()
    processes.Ports().close()


def test_services_see_nothing_that_leads_out_of_the_stack() -> None:
    shell = {
        "PATH": "/bin",
        "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/key.json",
        "CLOUDSDK_CORE_PROJECT": "production",
        "PUBSUB_EMULATOR_HOST": "127.0.0.1:1",
        "TRAINMASTER_PROJECT": "production",
        "https_proxy": "http://proxy.example:3128",
        "no_proxy": "intranet.example",
    }
    seen = processes.service_environment("some-id", shell)
    assert seen["PATH"] == "/bin"
    assert seen["https_proxy"] == "http://proxy.example:3128"
    assert seen["no_proxy"] == "intranet.example,127.0.0.1,localhost"
    assert seen[processes.STACK_ID] == "some-id"
    assert not {
        "GOOGLE_APPLICATION_CREDENTIALS",
        "CLOUDSDK_CORE_PROJECT",
        "PUBSUB_EMULATOR_HOST",
        "TRAINMASTER_PROJECT",
    } & set(seen)


def test_a_reused_pid_is_not_the_same_process() -> None:
    me = processes.started_at(os.getpid())
    assert me is not None
    assert processes.is_alive(os.getpid(), me)
    assert not processes.is_alive(os.getpid(), me - 60)


def test_exports_survive_any_shell_word() -> None:
    assert (
        client_configuration.exports({"A": "it's $HOME", "B": "plain"})
        == "export A='it'\"'\"'s $HOME'\nexport B=plain\n"
    )


def test_functions_get_the_documented_settings() -> None:
    given = client_configuration.application_environment(StackConfig(project="p", bucket="b"), ENDPOINTS)
    assert given == {
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


def test_each_function_has_its_topic() -> None:
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


def test_a_runtime_that_is_built_stands_for_its_image(tmp_path: Path) -> None:
    for name in ("pytorch", "tensorflow"):
        (tmp_path / name).mkdir()
    (tmp_path / "pytorch" / runtime_images.STAMP).touch()
    family = RUNTIMES["pytorch-2.13"].image.split("/")[-1]
    assert runtime_images.table(tmp_path) == {family: str(tmp_path / "pytorch"), "default": str(tmp_path / "pytorch")}


def test_without_images_vms_run_on_the_stack_s_own_python(tmp_path: Path) -> None:
    runtime_images.write_table(tmp_path / "none", tmp_path / "table.json")
    assert json.loads((tmp_path / "table.json").read_text()) == {"default": sys.prefix}


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine that has Java and nothing else, and no container engine."""
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    monkeypatch.delenv("CLOUDSDK_ROOT_DIR", raising=False)
    return tmp_path / "sdk"


def install(sdk: Path) -> None:
    for jar in (backends.FIRESTORE_JAR, "platform/pubsub-emulator/lib/cloud-pubsub-emulator-1.0-all.jar"):
        (sdk / jar).parent.mkdir(parents=True)
        (sdk / jar).touch()


def test_the_cloud_sdk_is_found_beside_its_gcloud(sdk: Path, tmp_path: Path) -> None:
    install(sdk)
    (sdk / "bin").mkdir()
    (sdk / "bin" / "gcloud").touch(mode=0o755)
    (tmp_path / "gcloud").symlink_to(sdk / "bin" / "gcloud")
    found = backends.available_backends()
    assert (found.kind, found.firestore_jar.parent.parent.parent) == (BackendKind.CLOUD_SDK, sdk)


def test_a_cloud_sdk_without_emulators_is_named_as_the_reason(sdk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDSDK_ROOT_DIR", str(sdk))
    found = backends.available_backends()
    assert found.kind is BackendKind.MEMORY
    assert found.reason == (
        "the Cloud SDK has no component cloud-firestore-emulator and no pubsub-emulator; no container engine answers"
    )


def test_without_java_and_engine_only_memory_is_left(sdk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME")
    found = backends.available_backends()
    assert (found.kind, found.reason) == (BackendKind.MEMORY, "no Java on PATH; no container engine answers")
    with pytest.raises(StackError, match=r"Needed: the Cloud SDK .* or a container engine"):
        backends.need_emulators()


def test_containers_that_are_asked_for_come_before_the_cloud_sdk(sdk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(sdk)
    monkeypatch.setenv("CLOUDSDK_ROOT_DIR", str(sdk))
    monkeypatch.setenv("TRAINMASTER_EMULATORS", "containers")
    assert StackConfig().emulators == "containers"
    found = backends.available_backends()
    assert (found.kind, found.reason) == (BackendKind.MEMORY, "containers are asked for; no container engine answers")
    assert backends.available_backends("cloud-sdk").kind is BackendKind.CLOUD_SDK
    with pytest.raises(StackError, match="TRAINMASTER_EMULATORS must be cloud-sdk or containers, not docker"):
        backends.available_backends("docker")


def test_a_state_file_cut_in_half_is_a_clear_error(tmp_path: Path) -> None:
    (tmp_path / state.STATE_FILE).write_text('{"id": "x', encoding="utf-8")
    with pytest.raises(StackError, match=r"stack\.json is not a stack's state"):
        state.read(tmp_path)
