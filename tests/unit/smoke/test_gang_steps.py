"""What the steps with a synchronous job conclude from the log, the series and the stored state."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from smoke import gang_steps
from smoke.world import Output, StepError, World
from tests.support.jobs import CHIEF, WORKER_0, a_job, a_replica, a_state
from tests.unit.smoke.test_run import a_world
from trainmaster.core.model.job import State
from trainmaster.core.model.round import Round
from trainmaster.core.model.vm_names import vm_name
from trainmaster.ports.metrics import Label, MetricPoint, MetricQuery, MetricSeries

JOB = "digits_1"
EARLIER = "worker-0: smoke-saved worker-0 4 900.000"
SIGNALLED = "worker-0: smoke-saved worker-0 7 1000.250"
TOLD = "chief-0: smoke-saved chief-0 7 1000.252"
ORDERED = "chief-0: smoke-saved chief-0 9 1004.452"


def a_gang(round_number: int = 1, generation: int = 1) -> State:
    """Return the state of a job of two replicas."""
    members = a_replica(CHIEF), a_replica(WORKER_0, vm_generation=generation)
    return replace(a_state(job=a_job(round=Round(round_number))), replicas=members)


class Cloud:
    """An installation whose log has these lines. `on_command` is called for commands of gcloud."""

    def __init__(self, *lines: str, simulated: Output = Output(0, text="", errors="")) -> None:  # noqa: B008
        self.state = a_gang()
        self.lines = lines
        self.simulated = simulated
        self.unreadable_after = 1_000
        """How often the log can be read."""
        self.age_s = 20.0
        self.written: list[str] = []

    def run(self, *argv: str, timeout_s: float = 0) -> Output:
        if argv[0] == "gcloud":
            self.state = a_gang(round_number=2, generation=2)
            return self.simulated
        if self.unreadable_after == 0:
            return Output(1, text="", errors="the log cannot be read")
        self.unreadable_after -= 1
        return Output(0, "\n".join(self.lines), errors="")

    def load_attempt(self, _: str) -> object:
        return SimpleNamespace(state=self.state)

    def list_vms(self, _: str) -> list[object]:
        return [SimpleNamespace(name=vm_name(JOB, WORKER_0), zone="us-central1-a", instance_id="7")]

    def write(self, uri: str, *_: object, **__: object) -> None:
        self.written.append(uri)
        self.state = a_gang(round_number=3, generation=3)

    def read(self, query: MetricQuery) -> list[MetricSeries]:
        return [
            MetricSeries(
                {Label.TASK_ID: str(replica.replica_id), Label.GENERATION: "1"},
                (MetricPoint(query.end - timedelta(seconds=self.age_s), 1.0),),
            )
            for replica in self.state.replicas
        ]


def a_world_of(cloud: Cloud) -> World:
    world = replace(
        a_world(),
        run=cloud.run,
        store=cast(Any, cloud),
        fleet=cast(Any, cloud),
        objects=cast(Any, cloud),
        metrics=cast(Any, cloud),
    )
    world.jobs[gang_steps.GANG] = JOB
    world.saw("gang_mark", "smoke1")
    return world


@pytest.fixture(autouse=True)
def no_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    for limit in ("LINES_MAX_S", "WATCHED_S", "POINTS_MAX_S", "HUNG_MAX_S", "ROUND_MAX_S"):
        monkeypatch.setattr(gang_steps, limit, 0.0)


@pytest.mark.parametrize(
    ("lines", "saved", "channel"),
    [
        ((SIGNALLED, TOLD), "saved", "reached"),
        ((EARLIER, SIGNALLED, TOLD), "saved", "reached"),
        ((SIGNALLED, ORDERED), "saved", "4.2 s apart"),
        ((SIGNALLED,), "only worker-0 saved", None),
    ],
)
def test_lines_of_the_members_tell_who_saved_and_whether_the_channel_asked(
    lines: tuple[str, ...], saved: str, channel: str | None
) -> None:
    world = a_world_of(Cloud(*lines))
    gang_steps.preempt_member(world)
    assert world.facts["gang_save"] == saved
    assert world.facts.get("peer_channel") == channel


def test_simulation_that_gcloud_refuses_is_named_if_nobody_was_asked() -> None:
    world = a_world_of(Cloud(simulated=Output(1, text="", errors="ERROR: not for Spot VMs")))
    with pytest.raises(StepError, match="not for Spot VMs"):
        gang_steps.preempt_member(world)
    assert "gang_save" not in world.facts


def test_log_that_cannot_be_read_says_nothing_about_the_members(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gang_steps, "LINES_MAX_S", 60.0)
    monkeypatch.setattr("smoke.world.POLL_S", 0.0)
    cloud = Cloud(SIGNALLED)
    cloud.unreadable_after = 1
    world = a_world_of(cloud)
    with pytest.raises(StepError, match="the log cannot be read"):
        gang_steps.preempt_member(world)
    assert "gang_save" not in world.facts


@pytest.mark.parametrize(("age_s", "seen"), [(19.5, "20"), (80.5, "81")])
def test_age_of_the_newest_point_is_rounded_up(age_s: float, seen: str) -> None:
    cloud = Cloud()
    cloud.age_s = age_s
    world = a_world_of(cloud)
    gang_steps.watch_alive_series(world)
    assert world.facts["alive_series"] == seen


def test_hung_vm_is_named_by_its_id_which_no_replacement_has() -> None:
    cloud = Cloud()
    world = a_world_of(cloud)
    gang_steps.hang_vm(world)
    assert cloud.written == ["gs://bucket/smoke/smoke1/hang-7"]
    assert world.facts["hung_vm"] == "0"
