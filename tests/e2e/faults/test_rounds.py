"""Frameworks as their users run them: one failure costs one restart, a lost machine none, and training goes on.

Each job trains on two VMs and meets every fault in turn: SIGKILL of each rank, a lost VM, a VM that reboots, a program
that hangs.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.e2e.conftest import Lab
from tests.integration.agent.support.packages import wheel_of
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name
from trainmaster_emulators.process.loopback import call
from trainmaster_emulators.process.state import ROOT

pytestmark = [pytest.mark.e2e, pytest.mark.heavy, pytest.mark.timeout(1800)]

CHIEF, WORKER = ReplicaId(TaskType.CHIEF, 0), ReplicaId(TaskType.WORKER, 0)
FRAMEWORKS = Path(__file__).parents[1] / "frameworks"
PEERS = ROOT / "examples" / "xgboost_digits" / "trainer" / "peers.py"
RECOVERS_S = 120.0
STALL_S = 180
"""Importing a framework prints nothing, on a busy machine for a minute or two."""
CASES = {
    "torchrun": ("trainer.torchrun", "pytorch-2.13", ()),
    "lightning": ("trainer.lightning_fit", "pytorch-2.13", ("lightning==2.6.*",)),
    "accelerate": ("trainer.accelerate_launch", "pytorch-2.13", ("accelerate==1.15.*",)),
    "jax": ("trainer.jax_steps", "scikit-learn-1.9", ("jax==0.10.*",)),
    "mwms": ("trainer.mwms", "2.21", ()),
    "xgboost": ("trainer.boosting", "xgboost-3.2", ()),
}
"""Module, runtime, and packages from PyPI."""


class Training:
    """A job of two replicas that take steps together."""

    def __init__(self, lab: Lab, framework: str) -> None:
        self.lab = lab
        module, runtime, requires = CASES[framework]
        files = {f"trainer/{path.name}": path.read_text() for path in (*FRAMEWORKS.glob("*.py"), PEERS)}
        uri = f"gs://{lab.bucket}/packages/{framework}/{framework}_steps-0.1-py3-none-any.whl"
        wheel = wheel_of(f"{framework}_steps", files, requires=requires)
        lab.objects.write(uri, wheel, content_type="application/octet-stream")
        spec = lab.scripted_spec(1, packageUris=[uri], pythonModule=module, args=[], runtimeVersion=runtime)
        self.job_id = lab.upload({**spec, "trainmaster": {"stallTimeout": f"{STALL_S}s"}}, framework)

    @property
    def charges(self) -> dict[str, int]:
        replicas = self.lab.state(self.job_id).replicas
        return {str(replica.replica_id): replica.restarts_used for replica in replicas if replica.restarts_used}

    def lines(self, replica_id: ReplicaId) -> list[str]:
        """Return what the replica has printed since its latest start on its current VM."""
        output = self.lab.console(self.job_id, replica_id).rpartition("begins")[2]
        return [line for line in output.splitlines() if "step " in line]

    def start(self, replica_id: ReplicaId) -> tuple[str, int]:
        """Return what identifies the latest start of the replica's program: its VM, and how many it has started."""
        return self.lab.vm(self.job_id, replica_id).instance_id, self.lab.console(self.job_id, replica_id).count(
            "begins"
        )

    def train(self, within_s: float = RECOVERS_S) -> None:
        """Wait until both replicas have taken steps since their latest start."""
        self.lab.until(lambda: all(len(self.lines(r)) > 2 for r in (CHIEF, WORKER)), within_s)

    def meet(self, fault: Callable[[], None]) -> float:
        """Inject the fault, wait for the next round and a step in it; return how long that took."""
        starts = {replica_id: self.start(replica_id) for replica_id in (CHIEF, WORKER)}
        began = time.monotonic()
        fault()
        for replica_id, before in starts.items():
            self.lab.until(partial(self._has_started, replica_id, before), RECOVERS_S + 2 * STALL_S)
        self.train()
        return time.monotonic() - began

    def _has_started(self, replica_id: ReplicaId, before: tuple[str, int]) -> bool:
        with suppress(StopIteration):  # no VM of the replica is listed
            return self.start(replica_id) not in (before, (before[0], 0))
        return False

    @property
    def verdict(self) -> str:
        """The sentence about the round that ended last."""
        entries = self.lab.decisions(self.job_id)
        return next(e.decision.text for e in reversed(entries) if e.decision.action.kind == "begin_round")

    def kill_rank(self, replica_id: ReplicaId, signum: signal.Signals = signal.SIGKILL) -> None:
        """Signal the process that trains: the last descendant of what the agent started."""
        pid = self.lab.faults.processes(vm_name(self.job_id, replica_id))["program"]
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        os.kill(next(p.pid for p in reversed(family) if "trainer." in " ".join(p.cmdline())), signum)

    def reboot(self, replica_id: ReplicaId) -> None:
        vm, state = self.lab.vm(self.job_id, replica_id), self.lab.stack.state
        path = f"/compute/v1/projects/{state.config.project}/zones/{vm.zone}/instances/{vm.name}/reset"
        assert state.endpoints.compute
        call(state.endpoints.compute, "POST", path, {})


@pytest.mark.parametrize("framework", CASES)
def test_one_fault_costs_its_culprit_one_restart_or_nothing(lab: Lab, framework: str) -> None:
    training = Training(lab, framework)
    job_id = training.job_id
    lab.wait(job_id, "RUNNING", 300)
    training.train(300)
    times = {}
    for replica_id in (CHIEF, WORKER):
        before = training.charges
        times[f"SIGKILL of {replica_id}"] = training.meet(partial(training.kill_rank, replica_id))
        assert training.charges == before | {str(replica_id): 1}, lab.story(job_id)
        assert replica_id.words in training.verdict, training.verdict
    paid = training.charges
    times["lost VM"] = training.meet(lambda: lab.faults.crash(vm_name(job_id, WORKER)))
    assert training.charges == paid, lab.story(job_id)
    assert "worker 0" in training.verdict, training.verdict
    times["reboot"] = training.meet(lambda: training.reboot(WORKER))
    assert training.charges == paid, lab.story(job_id)
    assert "worker 0" in training.verdict, training.verdict
    times["hang"] = training.meet(lambda: training.kill_rank(WORKER, signal.SIGSTOP))
    # If the framework notices the hang first, the member that reports it pays: no end shows who hung.
    assert sum(training.charges.values()) <= sum(paid.values()) + 1, lab.story(job_id)
    print(framework, {fault: f"{seconds:.1f} s" for fault, seconds in times.items()}, lab.story(job_id), sep="\n")
    lab.finish(job_id)
    lab.wait_for_success(job_id, 60)
