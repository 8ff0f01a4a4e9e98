"""Choice of the program that runs Google's emulators."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainmaster_emulators.process import backends
from trainmaster_emulators.process.backends import BackendKind
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.process.state import StackError


@pytest.fixture
def sdk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder for a Cloud SDK, on a machine that has Java but neither a Cloud SDK nor a
    container engine.
    """
    java = tmp_path / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "java"))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/no-engine.sock")
    monkeypatch.delenv("CLOUDSDK_ROOT_DIR", raising=False)
    return tmp_path / "sdk"


def install(sdk: Path) -> None:
    for jar in (
        backends.FIRESTORE_JAR,
        "platform/pubsub-emulator/lib/cloud-pubsub-emulator-1.0-all.jar",
    ):
        (sdk / jar).parent.mkdir(parents=True)
        (sdk / jar).touch()


def test_cloud_sdk_is_found_by_the_link_of_its_gcloud(sdk: Path, tmp_path: Path) -> None:
    install(sdk)
    (sdk / "bin").mkdir()
    (sdk / "bin" / "gcloud").touch(mode=0o755)
    (tmp_path / "gcloud").symlink_to(sdk / "bin" / "gcloud")
    backend = backends.choose_backend()
    assert (backend.kind, backend.firestore_jar.parent.parent.parent) == (
        BackendKind.CLOUD_SDK,
        sdk,
    )


def test_cloud_sdk_without_emulators_is_the_reason_for_memory(
    sdk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDSDK_ROOT_DIR", str(sdk))
    backend = backends.choose_backend()
    assert backend.kind is BackendKind.MEMORY
    assert (
        backend.reason
        == "the Cloud SDK has no component cloud-firestore-emulator and no pubsub-emulator; no"
        " container engine responds"
    )


def test_machine_without_java_and_engine_has_only_memory(
    sdk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("JAVA_HOME")
    backend = backends.choose_backend()
    assert (backend.kind, backend.reason) == (
        BackendKind.MEMORY,
        "no Java on PATH; no container engine responds",
    )
    with pytest.raises(StackError, match=r"Install the Cloud SDK .* or a container engine"):
        backends.require_backend()


def test_requested_backend_precedes_the_cloud_sdk(
    sdk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(sdk)
    monkeypatch.setenv("CLOUDSDK_ROOT_DIR", str(sdk))
    monkeypatch.setenv("TRAINMASTER_EMULATORS", "containers")
    assert StackConfig().emulators == "containers"
    backend = backends.choose_backend()
    assert (backend.kind, backend.reason) == (
        BackendKind.MEMORY,
        "TRAINMASTER_EMULATORS requests containers; no container engine responds",
    )
    assert backends.choose_backend("cloud-sdk").kind is BackendKind.CLOUD_SDK
    with pytest.raises(
        StackError, match="TRAINMASTER_EMULATORS: must be cloud-sdk or containers, not docker"
    ):
        backends.choose_backend("docker")
