"""What a VM's last job has left in its container engines is gone before the next job of the VM, or
it is a finding: a text that names it, and for which the VM is replaced.

What the engine had before the first job is of the VM's image, and stays. The engine is a stand-in:
its objects are files in the folders `container`, `volume` and `network`.
`tests/integration/containers/test_left_objects.py` does the same on a real one.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.program.container_engine import KINDS, ContainerEngine
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.setup.cancellable_runner import CancellableRunner
from trainmaster.agent.setup.container_image import ImagePuller
from trainmaster.agent.setup.previous_containers import (
    FIRST_OBJECTS,
    remember_first_objects,
    remove_left_objects,
)
from trainmaster.agent.workspace import Workspace

ENGINE = """#!/bin/sh
cd "$(dirname "$0")/objects" || exit 1
[ -e ../stopped ] && { echo "Cannot connect to the Docker daemon" >&2; exit 1; }
echo "$@" >> ../calls
case "$1 $2" in
    "ps --all") ls container;;
    "volume ls") ls volume;;
    "network ls") ls network;;
    "rm --force") shift 3; cd container && rm -f "$@";;
    "volume rm") shift 3; [ -n "$(ls container)" ] || { cd volume && rm -f "$@"; };;
    "network rm") shift 2; [ -n "$(ls container)" ] || { cd network && rm -f "$@"; };;
    *) exit 2;;
esac
"""


PREDEFINED = {"bridge", "host", "none"}
"""The networks that every engine has."""


class StandIn:
    """An engine whose objects are files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for kind in KINDS:
            (folder / "objects" / kind).mkdir(parents=True)
        for network in PREDEFINED:
            self.make("network", network)
        program = folder / "docker"
        program.write_text(ENGINE)
        program.chmod(0o755)
        self.engine = ContainerEngine(str(program), "vm")

    def make(self, kind: str, name: str) -> None:
        (self.folder / "objects" / kind / name).touch()

    def names(self) -> set[str]:
        return {path.name for path in (self.folder / "objects").glob("*/*")}

    def stop(self) -> None:
        """Let the engine answer no call until it is started."""
        (self.folder / "stopped").touch()

    def start(self) -> None:
        (self.folder / "stopped").unlink()


@pytest.fixture
def docker(tmp_path: Path) -> StandIn:
    return StandIn(tmp_path / "docker")


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    work = tmp_path / "work"
    work.mkdir()
    return Workspace(work, {"PATH": os.environ["PATH"]}, Console())


def leave_all(docker: StandIn) -> None:
    """Leave one container, one volume and one network, as a job does."""
    for kind in KINDS:
        docker.make(kind, f"left-{kind}")


def test_new_containers_volumes_and_networks_are_removed(
    workspace: Workspace, docker: StandIn
) -> None:
    docker.make("volume", "image-volume")
    docker.make("network", "image-network")
    remember_first_objects(workspace, [docker.engine])
    leave_all(docker)
    assert remove_left_objects(workspace, [docker.engine]) == (1, [])
    assert docker.names() == PREDEFINED | {"image-volume", "image-network"}


def test_container_of_the_image_stays(workspace: Workspace, docker: StandIn) -> None:
    docker.make("container", "of-the-image")
    remember_first_objects(workspace, [docker.engine])
    docker.make("container", "left")
    assert remove_left_objects(workspace, [docker.engine]) == (1, [])
    assert docker.names() == PREDEFINED | {"of-the-image"}


def test_first_objects_are_those_of_the_first_job_also_after_a_restart(
    workspace: Workspace, docker: StandIn
) -> None:
    remember_first_objects(workspace, [docker.engine])
    leave_all(docker)
    remember_first_objects(workspace, [docker.engine])
    remove_left_objects(workspace, [docker.engine])
    assert docker.names() == PREDEFINED


def test_engine_that_the_first_job_has_installed_had_nothing(
    workspace: Workspace, docker: StandIn
) -> None:
    remember_first_objects(workspace, [])
    leave_all(docker)
    assert remove_left_objects(workspace, [docker.engine]) == (1, [])
    assert docker.names() == PREDEFINED


ORIGIN_UNKNOWN = [
    f"it is not known whether the {kind} left-{kind} is of the last job"
    for kind in ("volume", "network")
]


@pytest.mark.parametrize("is_remembered", [True, False], ids=["did not answer", "not recorded"])
def test_volumes_and_networks_stay_and_are_findings_if_it_is_not_known_what_the_image_has(
    workspace: Workspace, docker: StandIn, *, is_remembered: bool
) -> None:
    if is_remembered:
        docker.stop()
        remember_first_objects(workspace, [docker.engine])
        docker.start()
    leave_all(docker)
    assert remove_left_objects(workspace, [docker.engine]) == (1, ORIGIN_UNKNOWN)
    assert docker.names() == PREDEFINED | {"left-volume", "left-network"}


@pytest.mark.parametrize(
    "record", ["", '{"docker": {"vol', "[]", '{"docker": []}', '{"docker": {"volume": 1}}']
)
def test_damaged_record_says_nothing_of_what_the_image_has(
    workspace: Workspace, docker: StandIn, record: str
) -> None:
    (workspace.work / FIRST_OBJECTS).write_text(record)
    leave_all(docker)
    assert remove_left_objects(workspace, [docker.engine]) == (1, ORIGIN_UNKNOWN)
    assert docker.names() == PREDEFINED | {"left-volume", "left-network"}


def test_engine_without_volumes_and_networks_is_clean_also_without_a_record(
    workspace: Workspace, docker: StandIn
) -> None:
    docker.make("container", "left")
    assert remove_left_objects(workspace, [docker.engine]) == (1, [])
    assert docker.names() == PREDEFINED


def test_record_is_whole_or_missing(
    workspace: Workspace, docker: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="no space"):
        remember_first_objects(workspace, [docker.engine])
    assert not (workspace.work / FIRST_OBJECTS).exists()


def test_what_stays_is_a_finding(
    workspace: Workspace, docker: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    remember_first_objects(workspace, [docker.engine])
    leave_all(docker)
    monkeypatch.setattr(ContainerEngine, "remove_objects", lambda *_: None)
    _, findings = remove_left_objects(workspace, [docker.engine])
    assert findings == [
        f"the {kind} left-{kind} of the last job cannot be removed" for kind in KINDS
    ]


SILENT = "what docker has is not known: Cannot connect to the Docker daemon"
MAY_RUN = "containers may run that docker does not end: Cannot connect to the Docker daemon"


@pytest.mark.parametrize("is_recorded", [True, False])
def test_engine_that_the_last_job_has_stopped_is_a_finding(
    workspace: Workspace, docker: StandIn, tmp_path: Path, *, is_recorded: bool
) -> None:
    """Its volumes and networks are there again when it starts."""
    if is_recorded:
        remember_first_objects(workspace, [docker.engine])
    docker.stop()
    assert remove_left_objects(workspace, [docker.engine], tmp_path / "proc") == (0, [SILENT])


@pytest.mark.parametrize(("process", "findings"), [("containerd-shim", [MAY_RUN]), ("bash", [])])
def test_engine_that_has_never_answered_is_a_finding_if_containers_may_run(
    workspace: Workspace, docker: StandIn, tmp_path: Path, process: str, findings: list[str]
) -> None:
    docker.stop()
    remember_first_objects(workspace, [docker.engine])
    (tmp_path / "proc" / "17").mkdir(parents=True)
    (tmp_path / "proc" / "17" / "comm").write_text(f"{process}\n")
    assert remove_left_objects(workspace, [docker.engine], tmp_path / "proc") == (0, findings)


def test_each_engine_of_the_vm_is_cleaned(workspace: Workspace, tmp_path: Path) -> None:
    """Programs may start containers with an engine that the agent does not use."""
    stand_ins = [StandIn(tmp_path / name) for name in ("docker", "podman")]
    (tmp_path / "podman" / "docker").rename(tmp_path / "podman" / "podman")
    path = os.pathsep.join([str(one.folder) for one in stand_ins] + [os.environ["PATH"]])
    engines = [
        engine
        for engine in ContainerEngine.find_all({"PATH": path}, "vm")
        if engine.name in ("docker", "podman")
    ]
    remember_first_objects(workspace, engines)
    assert (workspace.work / FIRST_OBJECTS).exists()
    for one in stand_ins:
        leave_all(one)
    assert remove_left_objects(workspace, engines) == (2, [])
    assert [one.names() for one in stand_ins] == [PREDEFINED, PREDEFINED]


PULLING = """#!/bin/sh
case "$1" in
    image) [ -e "$(dirname "$0")/present" ];;
    pull) echo "$2" >> "$(dirname "$0")/pulled";;
esac
"""


@pytest.mark.parametrize(
    ("image", "is_first_job", "pulls"),
    [
        ("docker.io/me/train:latest", False, 1),
        ("docker.io/me/train:latest", True, 0),
        (f"docker.io/me/train@sha256:{'0' * 64}", False, 0),
    ],
    ids=["tag after another job", "tag on a new VM", "digest"],
)
def test_tag_that_another_job_may_have_pulled_is_pulled_once_more(
    workspace: Workspace, tmp_path: Path, image: str, is_first_job: bool, pulls: int
) -> None:
    """An edited image of the same tag runs, as on new machines."""
    program = tmp_path / "docker"
    program.write_text(PULLING)
    program.chmod(0o755)
    (tmp_path / "present").touch()
    engine = ContainerEngine(str(program), "vm")
    for _ in range(2):  # the second time after a restart of the agent
        puller = ImagePuller(
            engine,
            MetadataServer("localhost:1"),
            CancellableRunner(),
            workspace,
            is_first_job=is_first_job,
        )
        puller.ensure_present(image)
    pulled = tmp_path / "pulled"
    assert (pulled.read_text().split() if pulled.exists() else []) == [image] * pulls
