"""Building a boot image: the commands in their order, failures, and the script on the VM."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from infra.bake_image import COMPLETE, SCRIPT, BakeError, Target, bake
from trainmaster.jobspec.catalog.runtimes import RUNTIMES

NOW = datetime(2026, 11, 22, 12, 0, tzinfo=UTC)


class Gcloud:
    """The answers of Google Cloud to the commands of one build.

    `consoles`: the serial console at each poll.
    """

    def __init__(self, consoles: Sequence[str] = ("Booting", COMPLETE)) -> None:
        self.calls: list[tuple[str, ...]] = []
        self._consoles = list(consoles)

    def __call__(self, words: Sequence[str]) -> str:
        self.calls.append(tuple(words))
        if words[2] != "get-serial-port-output":
            return ""
        return self._consoles.pop(0) if len(self._consoles) > 1 else self._consoles[0]

    @property
    def verbs(self) -> list[str]:
        return [" ".join(call[1:3]) for call in self.calls]


def target(version: str) -> Target:
    return Target("my-project", "us-central1-a", RUNTIMES[version])


def build(version: str, gcloud: Gcloud) -> str:
    return bake(target(version), NOW, gcloud, lambda _: None)


def test_image_is_made_of_the_disk_of_a_vm_that_is_deleted() -> None:
    gcloud = Gcloud()
    assert build("2.21", gcloud) == "trainmaster-common-cu129-ubuntu-2404-nvidia-580-2611221200"
    assert gcloud.verbs == [
        "instances create",
        "instances get-serial-port-output",
        "instances get-serial-port-output",
        "instances stop",
        "images create",
        "instances delete",
    ]
    create, image = gcloud.calls[0], gcloud.calls[-2]
    assert "--image-family=common-cu129-ubuntu-2404-nvidia-580" in create
    assert "--subnet=trainmaster-us-central1" in create
    assert any("tensorflow[and-cuda]==2.21.*" in word for word in create)
    assert "--family=trainmaster-common-cu129-ubuntu-2404-nvidia-580" in image


def test_names_of_images_are_valid_and_packages_fit_the_command_line() -> None:
    """A name has at most 63 characters; a comma would begin another metadata key."""
    for version in RUNTIMES:
        assert len(build(version, Gcloud())) <= 63, version
        assert not any("," in package for package in target(version).packages), version


def test_failed_installation_makes_no_image_and_leaves_no_vm() -> None:
    gcloud = Gcloud(["ERROR: No matching distribution found\ntrainmaster-bake: failed"])
    with pytest.raises(BakeError, match="No matching distribution found"):
        build("scikit-learn-1.9", gcloud)
    assert gcloud.verbs.count("instances get-serial-port-output") == 1
    assert "images create" not in gcloud.verbs
    assert gcloud.verbs[-1] == "instances delete"


def test_vm_that_never_completes_is_deleted() -> None:
    gcloud = Gcloud(["Booting"])
    with pytest.raises(BakeError, match="Booting"):
        build("2.21", gcloud)
    assert gcloud.verbs[-1] == "instances delete"


COMMAND = '#!/bin/bash\necho "$(basename "$0") $*" >>"{calls}"\n{behaviour}\n'


def run_script(tmp_path: Path, pip: str, *, has_engine: bool = False) -> tuple[str, str]:
    """Run bake.sh with stand-ins for the programs of the VM. Return its last line, and
    the calls.
    """
    calls = tmp_path / "calls"
    behaviours = {"curl": "echo 'torch==2.9.* torchvision==0.24.*'", "python3": pip}
    engine = ("docker",) if has_engine else ()
    for name in ("curl", "apt-get", "nvidia-ctk", "python3", "rm", *engine):
        (tmp_path / name).write_text(
            COMMAND.format(calls=calls, behaviour=behaviours.get(name, ""))
        )
        (tmp_path / name).chmod(0o755)
    (tmp_path / "basename").symlink_to("/usr/bin/basename")
    environment = {"PATH": str(tmp_path)}
    done = subprocess.run(
        ["/bin/bash", str(SCRIPT)], env=environment, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()[-1], calls.read_text()


@pytest.mark.parametrize(("pip", "outcome"), [("exit 0", "complete"), ("exit 1", "failed")])
def test_script_installs_the_packages_and_reports_the_outcome(
    pip: str, outcome: str, tmp_path: Path
) -> None:
    last, calls = run_script(tmp_path, pip)
    assert last == f"trainmaster-bake: {outcome}"
    assert "python3 -m pip install --user --no-cache-dir torch==2.9.* torchvision==0.24.*" in calls
    assert "ca-certificates docker.io" in calls
    assert "nvidia-ctk runtime configure --runtime=docker" in calls


def test_script_keeps_the_engine_of_the_image(tmp_path: Path) -> None:
    last, calls = run_script(tmp_path, "exit 0", has_engine=True)
    assert last == "trainmaster-bake: complete"
    assert "docker.io" not in calls
