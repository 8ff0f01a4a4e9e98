"""This project's local stack: the real functions and agents, on Google's emulators and with
processes for VMs.

The VMs exist at once, as the nodes of the peers do. The local stack has the times of its emulators,
not Google's.
"""

from __future__ import annotations

import itertools
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, Final
from unittest.mock import patch

import psutil
import yaml

from bench.peers.run import Run, families
from bench.peers.system import PROGRAMS, STARTS_S, System
from trainmaster import Client
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name
from trainmaster.jobspec.catalog.regions import REGION_ZONES
from trainmaster_emulators.checkout import ROOT
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.process.state import StackError, StackState
from trainmaster_emulators.services.fault_client import FaultClient
from trainmaster_emulators.stack import client_configuration
from trainmaster_emulators.stack import stack as stacks

REGION: Final = "us-central1"
# A limit for which jobs wait, and no quota of submissions
SETTINGS: Final = {"TRAINMASTER_LIMITS": "nvidia-tesla-t4=1", "TRAINMASTER_JOBS_PER_MINUTE": "0"}
PYTORCH: Final = "pytorch-2.13"
MACHINE: Final = {"masterType": "n1-standard-4", "scaleTier": "CUSTOM"}
STUDY: Final = {
    "hyperparameterMetricTag": "accuracy",
    "goal": "MAXIMIZE",
    "maxTrials": 8,
    "maxParallelTrials": 2,
    "params": [{"parameterName": "rate", "type": "DOUBLE", "minValue": 0, "maxValue": 1}],
}


class Trainmaster(System):
    """A local stack. Each run of a program is a job that the command line submits."""

    name: ClassVar = "Trainmaster"
    package: ClassVar = "trainmaster"
    _numbers: ClassVar = itertools.count(1)
    job: str = ""

    @property
    def bin(self) -> Path:
        return ROOT / ".venv" / "bin"

    @property
    def state(self) -> StackState:
        return stacks.find(self.folder / "stack")

    def up(self) -> None:
        package = self.folder / "trainer"
        package.mkdir()
        (package / "__init__.py").touch()
        for program in ("steps.py", "ddp.py", "trial.py"):
            shutil.copy(PROGRAMS / program, package)
        stacks.start(
            self.folder / "stack", StackConfig(ready_within_s=STARTS_S, settings=SETTINGS)
        ).wait_ready()
        self.environment |= client_configuration.environment(self.folder / "stack", self.state)

    def start(self, run: Run) -> None:
        elastic = {"elastic": {"minReplicas": 1}} if run.fewest == (1,) else None
        self._submit(run, "steps", elastic, **self._members(run))

    def start_collective(self, run: Run) -> None:
        self._submit(run, "ddp", runtimeVersion=PYTORCH, **self._members(run))

    def hang(self, run: Run) -> None:
        self._submit(run, "steps", {"stallTimeout": "60s"}, **self._members(run))

    def tune(self, run: Run) -> None:
        self._submit(run, "trial", hyperparameters=STUDY)

    def _members(self, run: Run) -> dict[str, object]:
        return {"workerType": MACHINE["masterType"], "workerCount": run.ranks - 1}

    def _submit(self, run: Run, module: str, extension: object = None, **training: object) -> None:
        """Submit a job as a user does, with the folder of its package."""
        self.job = f"bench_{next(self._numbers)}"
        program = {
            "pythonModule": f"trainer.{module}",
            "runtimeVersion": "scikit-learn-1.9",
            "region": REGION,
        }
        spec = {"trainingInput": {**MACHINE, **program, **training}} | (
            {"trainmaster": extension} if extension else {}
        )
        config = self.folder / f"{self.job}.yaml"
        config.write_text(yaml.safe_dump(spec), encoding="utf-8")
        bucket = f"--staging-bucket=gs://{self.state.config.bucket}"
        command = (
            self.bin / "trainmaster",
            "submit",
            self.job,
            f"--config={config}",
            "--package-path=trainer",
            bucket,
        )
        self.call(*command, "--", run.file, *run.fewest)

    def lose_machine(self, run: Run) -> None:
        FaultClient(self.state).change(stockout_zones=REGION_ZONES[REGION])
        FaultClient(self.state).crash(self._machine)

    def offer_machine(self, run: Run) -> None:
        FaultClient(self.state).clear()

    def announce(self, run: Run) -> None:
        FaultClient(self.state).preempt(self._machine)

    @property
    def _machine(self) -> str:
        return vm_name(self.job, ReplicaId(TaskType.WORKER, 0))

    def keep(self, count: int) -> None:
        # One waits for capacity that does not come, and the others for the only GPU that the limit
        # allows.
        FaultClient(self.state).change(stockout_zones=REGION_ZONES[REGION])
        package = {
            "packageUris": ["gs://bucket/trainer-0.1.tar.gz#1"],
            "pythonModule": "trainer.task",
        }
        gpu = {"masterConfig": {"acceleratorConfig": {"type": "NVIDIA_TESLA_T4", "count": 1}}}
        training = {
            **MACHINE,
            **package,
            **gpu,
            "region": REGION,
            "runtimeVersion": "scikit-learn-1.9",
        }
        numbers = itertools.islice(self._numbers, count)
        with patch.dict(os.environ, self.environment), ThreadPoolExecutor(4) as pool:
            jobs = ({"jobId": f"bench_{number}", "trainingInput": training} for number in numbers)
            list(pool.map(Client().submit, jobs))

    def controller(self) -> list[int]:
        services = [self.state.services[name] for name in self.state.config.functions]
        return [process.pid for process in families(service.pid for service in services)]

    def end(self, run: Run) -> None:
        if self.job:
            self.spawn(self.bin / "trainmaster", "jobs", "cancel", self.job).wait(STARTS_S)
        self.job = ""
        super().end(run)

    def idle(self) -> list[psutil.Process]:
        return families(service.pid for service in self.state.services.values())

    def down(self) -> None:
        with suppress(StackError):
            stacks.stop(self.folder / "stack")
