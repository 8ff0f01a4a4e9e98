"""The fuse of a TPU node: when it burns, and that it burns on until the node is gone."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from shared.agent.control.vm_config import Gang
from shared.agent.control.workspace import Place
from shared.agent.http.calls import Answer, HttpError
from shared.agent.http.metadata_server import Google, Metadata
from shared.agent.reporting.serial_console import Console
from shared.agent.shutdown.self_delete import RETRY_MAX_S, Fuse
from tests.integration.compute.emulator import PROJECT, eventually, running_emulator
from tests.integration.tpu.world import ONE_HOST, ZONE, Slices

from .support.vm import replica_id

NODE = "projects/p/locations/z/nodes/tm-a"


class CloudTpu:
    """Answers deletes as told, and keeps time."""

    def __init__(self, *statuses: int) -> None:
        self.now = 1000.0
        self.asked: list[tuple[float, str, str | None]] = []
        self._statuses = list(statuses)

    def call(self, path: str, *, timeout: float, method: str | None = None, **_: object) -> Answer:
        self.asked.append((self.now, path, method))
        status = self._statuses.pop(0)
        if status != 200:
            raise HttpError(status, "said no")
        return Answer(cast(Mapping[str, str], {}), b"{}")

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def a_fuse(tpu: CloudTpu, work: Path, after_s: float = 500) -> Fuse:
    place = Place(work, {}, Console())
    return Fuse(NODE, after_s, cast(Google, tpu), place, sleep=tpu.sleep, now=lambda: tpu.now)


def test_it_burns_when_the_time_is_over_and_ends_with_the_node(tmp_path: Path) -> None:
    tpu = CloudTpu(200, 404)
    a_fuse(tpu, tmp_path).burn()
    assert tpu.asked[0] == (1500.0, f"/v2/{NODE}", "DELETE")
    assert len(tpu.asked) == 2


def test_a_reboot_does_not_put_it_off(tmp_path: Path) -> None:
    first = CloudTpu(404)
    a_fuse(first, tmp_path).burn()
    second = CloudTpu(404)
    second.now = 1400.0
    a_fuse(second, tmp_path).burn()
    assert second.asked[0][0] == 1500.0


def test_a_moment_that_was_half_written_is_chosen_again(tmp_path: Path) -> None:
    (tmp_path / "fuse").write_text("")
    tpu = CloudTpu(404)
    a_fuse(tpu, tmp_path).burn()
    assert tpu.asked[0][0] == 1500.0


def test_it_does_not_give_up(tmp_path: Path) -> None:
    tpu = CloudTpu(403, 503, 0, *[409] * 12, 200, 404)
    a_fuse(tpu, tmp_path).burn()
    times = [at for at, _, _ in tpu.asked]
    assert len(times) == 17
    assert max(after - before for before, after in pairwise(times)) <= RETRY_MAX_S


def test_only_gangs_of_tpus_say_so() -> None:
    assert replica_id(fuse_s=7200).gang.fuse_s == 7200
    assert isinstance(replica_id().gang, Gang)
    assert replica_id().gang.fuse_s is None


@pytest.mark.timeout(120)
def test_on_the_emulator_the_node_is_gone(tmp_path: Path) -> None:
    with running_emulator(tmp_path) as emulator:
        slices = Slices(emulator)
        name = slices.run("node", tpu=ONE_HOST).name
        work = tmp_path / "work"
        work.mkdir()
        google = Google(emulator.endpoint, "", Metadata("127.0.0.1:9"))
        Fuse(name, 0, google, Place(work, {}, Console())).burn()
        eventually(lambda: slices.state("node") == "GONE", 30)
        assert name == f"projects/{PROJECT}/locations/{ZONE}/nodes/node"
