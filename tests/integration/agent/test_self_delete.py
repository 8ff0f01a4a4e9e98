"""The self-deletion of a TPU node: its deadline, and its retries until the node is gone."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from tests.integration.compute.emulator import PROJECT, running_emulator
from tests.integration.tpu.slices import ONE_HOST, ZONE, Slices
from tests.support.stack import eventually
from trainmaster.agent.google_http.google_api import GoogleApi
from trainmaster.agent.google_http.http_call import HttpError, HttpResponse
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.vm_config import VmConfig
from trainmaster.agent.reporting.serial_console import Console
from trainmaster.agent.shutdown.self_delete import RETRY_MAX_S, SelfDelete
from trainmaster.agent.workspace import Workspace

from .support.vm import agent_identity

NODE = "projects/p/locations/z/nodes/tm-a"
BOOTED_AT = 1000.0
"""Time at which the agent first starts, in seconds."""
FUSE_S = 500
"""The node deletes itself this long after that."""
DEADLINE = BOOTED_AT + FUSE_S


class CloudTpu:
    """A stand-in for Cloud TPU: it answers deletions with the given statuses, one after the other.

    It also is the clock: `sleep` advances its time.
    """

    def __init__(self, *statuses: int) -> None:
        self.now = BOOTED_AT
        self.calls: list[tuple[float, str, str | None]] = []
        self._statuses = list(statuses)

    def call(
        self, path: str, *, timeout: float, method: str | None = None, **_: object
    ) -> HttpResponse:
        self.calls.append((self.now, path, method))
        status = self._statuses.pop(0)
        if status != 200:
            raise HttpError(status, "rejected")
        return HttpResponse(cast(Mapping[str, str], {}), b"{}")

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def self_delete(tpu: CloudTpu, work: Path) -> SelfDelete:
    place = Workspace(work, environ={}, console=Console())
    return SelfDelete(
        NODE, FUSE_S, cast(GoogleApi, tpu), place, sleep=tpu.sleep, now=lambda: tpu.now
    )


def test_node_is_deleted_before_its_deadline_if_its_job_pays_for_no_more_time(
    tmp_path: Path,
) -> None:
    tpu = CloudTpu(503, 200, 404)
    self_delete(tpu, tmp_path).delete()
    assert tpu.calls[0] == (BOOTED_AT, f"/v2/{NODE}", "DELETE")


def test_node_is_deleted_at_its_deadline(tmp_path: Path) -> None:
    tpu = CloudTpu(200, 404)
    self_delete(tpu, tmp_path).run()
    assert tpu.calls[0] == (DEADLINE, f"/v2/{NODE}", "DELETE")
    assert len(tpu.calls) == 2, "the second one finds that the node is gone"


def test_reboot_does_not_postpone_the_deadline(tmp_path: Path) -> None:
    first = CloudTpu(404)
    self_delete(first, tmp_path).run()
    second = CloudTpu(404)
    second.now = DEADLINE - 100
    self_delete(second, tmp_path).run()
    assert second.calls[0][0] == DEADLINE


def test_truncated_deadline_is_chosen_again(tmp_path: Path) -> None:
    (tmp_path / "delete_at").write_text("")
    tpu = CloudTpu(404)
    self_delete(tpu, tmp_path).run()
    assert tpu.calls[0][0] == DEADLINE


def test_deletion_is_retried_until_the_node_is_gone(tmp_path: Path) -> None:
    no_answer = 0
    answers = (403, 503, no_answer, *[409] * 12, 200, 404)
    tpu = CloudTpu(*answers)
    self_delete(tpu, tmp_path).run()
    times = [at for at, _, _ in tpu.calls]
    assert len(times) == len(answers)
    assert max(after - before for before, after in pairwise(times)) <= RETRY_MAX_S


def test_deadline_is_none_unless_the_config_has_one() -> None:
    two_hours_s = 7200
    assert agent_identity(fuse_s=two_hours_s).config.fuse_s == two_hours_s
    config = agent_identity().config
    assert isinstance(config, VmConfig)
    assert config.fuse_s is None


@pytest.mark.timeout(120)
def test_node_is_deleted_on_the_emulator(tmp_path: Path) -> None:
    with running_emulator(tmp_path) as emulator:
        slices = Slices(emulator)
        name = slices.run("node", tpu=ONE_HOST).name
        work = tmp_path / "work"
        work.mkdir()
        google = GoogleApi(emulator.endpoint, real="", metadata=MetadataServer("127.0.0.1:9"))
        SelfDelete(name, 0, google, Workspace(work, environ={}, console=Console())).run()
        eventually(lambda: slices.state("node") == "DELETED", 30)
        assert name == f"projects/{PROJECT}/locations/{ZONE}/nodes/node"
