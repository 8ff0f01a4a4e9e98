"""Programs as the pages of their libraries write them, without a line for the platform, while the
machines fail.

Each job meets every fault in turn. After each one, the training goes on behind its last checkpoint;
a failure of the program costs its replica one restart, a lost machine none; and the verdict names
the replica. `make test-ecosystem` prints the table that docs/frameworks.md shows. LIBRARIES is an
expression of pytest's -k; FAULTS selects faults. WHEELS is a folder of wheels that jobs get in
place of packages from PyPI, such as one of DeepSpeed with its extension.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import psutil
import pytest

from tests.e2e.conftest import Lab
from tests.e2e.frameworks.slow_input import SAVE_EVERY, STEPS
from tests.integration.agent.support.packages import wheel_of
from trainmaster.core.actions import (
    BeginRound,
    Budget,
    ReplaceVm,
    RerunJob,
    RestartReplica,
    StopRound,
)
from trainmaster.core.model.replica_id import ReplicaId, TaskType
from trainmaster.core.model.vm_names import vm_name
from trainmaster_emulators.checkout import ROOT
from trainmaster_emulators.process.loopback import call

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.heavy(
        fact="programs of public libraries go on after each fault",
        quick=(
            "`unit/agent/program/test_launcher_tracebacks.py` with their recorded output,"
            " `integration/examples/test_launcher_conventions.py`"
        ),
    ),
    pytest.mark.timeout(2400),
]

CHIEF, WORKER = ReplicaId(TaskType.CHIEF, 0), ReplicaId(TaskType.WORKER, 0)
PROGRAMS: Final = Path(__file__).parents[1] / "frameworks"
PEERS: Final = ROOT / "examples" / "xgboost_digits" / "trainer" / "peers.py"
TABLE: Final = ROOT / "build" / "frameworks.md"
RECOVERS_S: Final = 120.0
"""Longest time from a fault to the next step."""
STALL_S: Final = 180
"""The `stallTimeout` of the jobs. The import of a framework prints nothing, on a busy machine for
a minute or two.
"""
START: Final = "Running command: python3 -m"
STEP: Final = rf"\bstep (\d+)/{STEPS}\b"
BAR: Final = rf"\| (\d+)/(?:{STEPS}|\?) \["
"""Lightning leaves out the total in the first epoch after a restart."""
CURVE_S: Final = 240.0
"""How long a curve may take: summary events are read only when the output has shown nothing for two
minutes.
"""


@dataclass(frozen=True)
class Library:
    runtime: str
    command: tuple[str, ...]
    """Module that `python3 -m` starts, and its arguments before the folder of checkpoints."""
    requires: tuple[str, ...] = ()
    """Packages from PyPI."""
    step: str = STEP
    """How a step looks in the output: the library's own bar, where it draws one."""
    workers: int = 1
    env: tuple[tuple[str, str], ...] = ()
    extension: tuple[tuple[str, object], ...] = ()
    faults: tuple[str, ...] = (
        "kill chief",
        "kill worker",
        "lost VM",
        "preemption",
        "reboot",
        "hang",
    )
    folder: str = "/gcs"
    """How the job writes the path of the mount."""
    rank: str = "trainer."
    """What the command line of a process that trains contains."""
    per_epoch: bool = False
    """Whether `step` finds epochs of `SAVE_EVERY` steps."""
    in_bursts: bool = False
    """Whether the output appears only at checkpoints, as a bar without line ends does: a save may
    be hit.
    """


ALONE: Final = ("kill chief", "preemption")
TORCHRUN: Final = "torch.distributed.run"
TORCH: Final = "pytorch-2.13"
LIBRARIES: Final = {
    "torchrun": Library(TORCH, (TORCHRUN, "-m", "trainer.ddp")),
    "lightning": Library(TORCH, ("trainer.lightning_fit",), ("lightning==2.6.*",), BAR),
    "accelerate": Library(TORCH, (TORCHRUN, "-m", "trainer.accelerated"), ("accelerate==1.*",)),
    "jax": Library("scikit-learn-1.9", ("trainer.jax_steps",), ("jax==0.10.*",)),
    "mwms": Library("2.11", ("trainer.mwms",), step=r"Epoch (\d+)/", per_epoch=True),
    "xgboost": Library("xgboost-3.2", ("trainer.boosting",)),
    "transformers": Library(
        TORCH,
        (TORCHRUN, "-m", "trainer.hugging_face"),
        ("transformers==5.*", "accelerate==1.*", "tensorboard==2.*"),
        BAR,
        faults=ALONE,
    ),
    "deepspeed": Library(
        TORCH,
        (TORCHRUN, "-m", "trainer.deep_speed"),
        ("deepspeed==0.19.*",),
        faults=("kill chief", "lost VM"),
    ),
    "deepspeed_launcher": Library(
        TORCH,
        (
            "deepspeed.launcher.runner",
            "--num_gpus",
            "2",
            "--no_local_rank",
            "--module",
            "trainer.deep_speed",
        ),
        ("deepspeed==0.19.*",),
        workers=0,  # on several VMs it needs a custom job, which has PyTorch 2.9, or ssh
        faults=ALONE,
    ),
    "transformers_deepspeed": Library(
        TORCH,
        (TORCHRUN, "-m", "trainer.hugging_face", "--deepspeed"),
        ("transformers==5.*", "accelerate==1.*", "tensorboard==2.*", "deepspeed==0.19.*"),
        BAR,
        env=(
            ("ACCELERATE_USE_CPU", "false"),  # the platform's `true` turns DeepSpeed off
            ("ACCELERATE_USE_DEEPSPEED", "true"),
        ),
        faults=("kill worker", "lost VM"),
        in_bursts=True,
    ),
    "keras": Library(
        "scikit-learn-1.9",
        ("trainer.keras_jax",),
        ("keras==3.*", "jax==0.10.*"),
        r"Epoch (\d+)/",
        env=(("KERAS_BACKEND", "jax"),),
        folder="//gcs",  # Keras without TensorFlow refuses paths that begin with /gcs/
        faults=ALONE,
        per_epoch=True,
    ),
    "ray": Library(
        TORCH,
        ("trainer.ray_train",),
        ("ray[train]==2.*",),
        workers=0,
        env=(("RAY_DEDUP_LOGS", "0"),),
        # Without ray[default], Ray prints each second, also while its workers hang.
        faults=(
            "kill chief",
            "lost VM",
        ),
        rank="ray::RayTrainWorker",
    ),
    "fabric": Library(
        TORCH, ("trainer.fabric_loop",), ("lightning==2.6.*",), faults=("kill chief", "lost VM")
    ),
    "dcp": Library(
        TORCH, (TORCHRUN, "-m", "trainer.async_dcp"), faults=("kill worker", "kill rank", "lost VM")
    ),
    "orbax": Library(
        "scikit-learn-1.9",
        ("trainer.orbax_steps",),
        ("jax==0.10.*", "orbax-checkpoint==0.11.*"),
        faults=("kill worker", "lost VM"),
    ),
    "keras_torch": Library(
        TORCH,
        ("trainer.keras_torch",),
        ("keras==3.*",),
        r"Epoch (\d+)/",
        workers=0,
        env=(("KERAS_BACKEND", "torch"),),
        folder="//gcs",
        faults=ALONE,
        per_epoch=True,
    ),
    "wandb": Library(
        "scikit-learn-1.9",
        ("trainer.wandb_offline",),
        ("wandb==0.*",),
        workers=0,
        env=(("WANDB_MODE", "offline"),),
        faults=ALONE,
    ),
    "mlflow": Library(
        "scikit-learn-1.9",
        ("trainer.mlflow_sqlite",),
        ("mlflow==3.*",),
        workers=0,
        env=(("MLFLOW_TRACKING_URI", "sqlite:///{server}/mlflow.db"),),
        extension=(("trackingRun", "one"),),
        faults=ALONE,
    ),
    "goodput": Library(
        "scikit-learn-1.9",
        ("trainer.goodput_recorder",),
        ("ml_goodput_measurement==0.2.*",),
        workers=0,
        faults=ALONE,
    ),
    "tensorboard": Library(
        TORCH,
        ("trainer.tensorboard_events",),
        ("tensorboard==2.*",),
        r"saved after (\d+) batches",
        workers=0,
        faults=ALONE,
    ),
}


class Training:
    """A job that trains with one of the libraries."""

    def __init__(self, lab: Lab, name: str) -> None:
        self.lab, self.library = lab, LIBRARIES[name]
        library = self.library
        self.selected = (
            os.environ["FAULTS"].split(",") if os.environ.get("FAULTS") else library.faults
        )
        self.replicas = (CHIEF, WORKER)[: 1 + library.workers]
        files = {
            f"trainer/{path.name}": path.read_text() for path in (*PROGRAMS.glob("*.py"), PEERS)
        }
        uri = f"gs://{lab.bucket}/packages/{name}/{name}_program-0.1-py3-none-any.whl"
        wheel = wheel_of(f"{name}_program", files, requires=library.requires)
        lab.objects.write(uri, wheel, content_type="application/octet-stream")
        lab.objects.write(
            f"gs://{lab.bucket}/libraries/{name}/README", b"checkpoints", content_type="text/plain"
        )
        uris = [uri]
        names = {requirement.partition("==")[0] for requirement in library.requires}
        for path in Path(os.environ.get("WHEELS") or "/nowhere").glob("*.whl"):
            if path.name.partition("-")[0] in names:
                uris.insert(0, f"gs://{lab.bucket}/packages/{name}/{path.name}")
                lab.objects.write(
                    uris[0], path.read_bytes(), content_type="application/octet-stream"
                )
        module, *words = library.command
        spec = lab.scripted_spec(
            workers=library.workers,
            packageUris=uris,
            pythonModule=module,
            args=[*words, f"{library.folder}/{lab.bucket}/libraries/{name}"],
            jobDir=f"gs://{lab.bucket}/libraries/{name}",
            runtimeVersion=library.runtime,
        )
        env = {
            variable: value.format(bucket=lab.bucket, server=lab.packages)
            for variable, value in library.env
        }
        stall = {"stallTimeout": f"{STALL_S}s"} if {"hang", "hang chief"} & {*self.selected} else {}
        extension = {**stall, "env": env, **dict(library.extension)}
        self.job_id = lab.upload({**spec, "trainmaster": extension}, name)

    @property
    def charges(self) -> dict[str, int]:
        """How often each replica, or the job, was charged, over all attempts: the third machine in
        a row that is lost soon moves the job to another zone, in another attempt.
        """
        counts: Counter[str] = Counter()
        for entry in self.lab.store.ledger(self.job_id):
            action = entry.decision.action
            if isinstance(action, StopRound) and action.replacement is not None:
                action = action.replacement
            if isinstance(action, RerunJob):
                counts["job"] += action.charge is Budget.RERUNS
            elif isinstance(action, BeginRound | RestartReplica | ReplaceVm):
                _attempt, _, replica = (action.replica or "").partition("-")
                counts[replica] += action.charge is Budget.RESTARTS
        return dict(+counts)

    @property
    def steps(self) -> list[int]:
        """The steps that rank 0 has shown since its latest start."""
        with suppress(StopIteration):  # no VM of the replica is listed
            return self._steps_in(self.lab.console(self.job_id, CHIEF).rpartition(START)[2])
        return []

    def _steps_in(self, output: str) -> list[int]:
        return [int(step) for step in re.findall(self.library.step, output) if int(step)]

    @property
    def runs(self) -> set[str]:
        """The runs of the tracker that rank 0 has printed on its current VM."""
        return set(
            re.findall(r"^run (\w[\w-]+)\s*$", self.lab.console(self.job_id, CHIEF), re.MULTILINE)
        )

    def last_step(self, start: tuple[str, int]) -> int:
        """Return the last step that rank 0 has shown since this start, also of a VM
        that is gone.
        """
        instance_id, number = start
        [log] = (self.lab.stack.state_dir / "compute" / "serial").glob(f"*-{instance_id}.log")
        return max(self._steps_in(log.read_text(errors="replace").split(START)[number]), default=0)

    def start(self, replica_id: ReplicaId) -> tuple[str, int]:
        """Return what identifies the latest start of the replica's program: its VM, and how many it
        has started.
        """
        return self.lab.vm(self.job_id, replica_id).instance_id, self.lab.console(
            self.job_id, replica_id
        ).count(START)

    def train(self, within_s: float = RECOVERS_S) -> None:
        """Wait for steps behind the first checkpoint, and until none is being written."""

        def has_trained() -> bool:
            state = self.lab.state(self.job_id).job.state
            assert not state.is_terminal, f"{state}: {self.lab.story(self.job_id)}"
            shown = self.steps
            if self.library.per_epoch or self.library.step.startswith("saved"):
                return len(set(shown)) > 1
            if len(set(shown)) < 3 or shown[-1] <= SAVE_EVERY:
                return False
            return self.library.in_bursts or 4 <= shown[-1] % SAVE_EVERY <= 12

        self.lab.until(has_trained, within_s)
        outputs = [
            self.lab.console(self.job_id, replica_id).rpartition(START)[2]
            for replica_id in self.replicas
        ]
        shown = {
            line
            for output in outputs
            for line in re.findall(rf"{STEP} (loss \d+\.\d{{4}})", output)
        }
        assert len(shown) == len({step for step, _ in shown}), (
            "the replicas train apart: their losses differ"
        )

    def meet(self, fault: Callable[[], None]) -> tuple[float, int, int]:
        """Inject the fault, wait for the next round and a step in it.

        Return how long that took, in seconds, the last step before it, and the first one in the new
        round. The training must go on behind its last checkpoint.
        """
        starts = {replica_id: self.start(replica_id) for replica_id in self.replicas}
        began = time.monotonic()
        fault()
        for replica_id, before in starts.items():
            self.lab.until(partial(self._has_started, replica_id, before), RECOVERS_S + 2 * STALL_S)
        self.lab.until(lambda: self.steps, 2 * RECOVERS_S)  # another VM installs the packages
        took_s = time.monotonic() - began
        unit = 1 if self.library.per_epoch else SAVE_EVERY
        last, first = self.last_step(starts[CHIEF]), self.steps[0]
        assert max(1, last - 2 * unit) < first <= last + unit, (
            last,
            self.steps[:3],
            self.lab.story(self.job_id),
        )
        self.train()
        return took_s, last, first

    def _has_started(self, replica_id: ReplicaId, before: tuple[str, int]) -> bool:
        with suppress(StopIteration):  # no VM of the replica is listed
            return self.start(replica_id) not in (before, (before[0], 0))
        return False

    @property
    def verdict(self) -> str:
        """The sentence about the round, or the incarnation of a single machine, that ended last.

        The first round of an attempt begins without one: the end is told by what began the attempt.
        """
        kinds = ("begin_round", "restart_replica", "replace_vm", "rerun_job")
        texts = [
            entry.decision.text
            for entry in self.lab.decisions(self.job_id)
            if entry.decision.action.kind in kinds
        ]
        return next(
            text for text in reversed(texts) if not text.startswith("Every member is ready")
        )

    def kill_rank(self, replica_id: ReplicaId, signum: signal.Signals = signal.SIGKILL) -> None:
        """Signal the process that trains: the last descendant of what the agent started."""
        pid = self.lab.faults.processes(vm_name(self.job_id, replica_id))["program"]
        family = [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]
        os.kill(
            next(p.pid for p in reversed(family) if self.library.rank in " ".join(p.cmdline())),
            signum,
        )

    def kill_parent_of_loaders(self, replica_id: ReplicaId) -> None:
        """Kill the process of the rank itself: what the launcher started, not a worker of its data
        loader.
        """
        launcher = psutil.Process(
            self.lab.faults.processes(vm_name(self.job_id, replica_id))["program"]
        )
        family = [launcher, *launcher.children(recursive=True)]
        ranks = [
            process.pid for process in family if self.library.rank in " ".join(process.cmdline())
        ]
        os.kill(ranks[1], signal.SIGKILL)

    def reboot(self, replica_id: ReplicaId) -> None:
        vm, state = self.lab.vm(self.job_id, replica_id), self.lab.stack.state
        path = (
            f"/compute/v1/projects/{state.config.project}/zones/{vm.zone}/instances/{vm.name}/reset"
        )
        assert state.endpoints.compute
        call(state.endpoints.compute, "POST", path, {})

    def faults(self) -> Iterator[tuple[str, ReplicaId, Callable[[], None]]]:
        """Yield the name of each fault, the replica that it hits, and how it is injected."""
        last = self.replicas[-1]
        inject: dict[str, tuple[ReplicaId, Callable[[], None]]] = {
            "kill chief": (CHIEF, partial(self.kill_rank, CHIEF)),
            "kill worker": (last, partial(self.kill_rank, last)),
            "kill rank": (last, partial(self.kill_parent_of_loaders, last)),
            "lost VM": (last, lambda: self.lab.faults.crash(vm_name(self.job_id, last))),
            "preemption": (
                last,
                lambda: self.lab.faults.preempt(vm_name(self.job_id, last), notice_s=10),
            ),
            "reboot": (last, partial(self.reboot, last)),
            "hang": (last, partial(self.kill_rank, last, signal.SIGSTOP)),
            "hang chief": (CHIEF, partial(self.kill_rank, CHIEF, signal.SIGSTOP)),
        }
        for name in self.selected:
            yield name, *inject[name]

    def shown(self, name: str, *options: str) -> dict[str, object]:
        """What `jobs describe` shows of the program under this name."""
        program = str(ROOT / ".venv" / "bin" / "trainmaster")
        words = ("jobs", "describe", self.job_id, "--format", "json", *options)
        shown = self.lab.stack.run(program, *words, timeout_s=CURVE_S)
        found: dict[str, object] = json.loads(shown.stdout)["trainmaster"].get(name) or {}
        return found


@pytest.fixture(scope="module")
def table() -> Iterator[dict[str, str]]:
    """Rows by library, which are added to those of earlier runs in build/frameworks.md."""
    rows: dict[str, str] = {}
    yield rows
    TABLE.parent.mkdir(exist_ok=True)
    earlier = TABLE.read_text().splitlines() if TABLE.exists() else []
    rows = {line.split("`")[1]: line for line in earlier if "`" in line} | rows
    TABLE.write_text("\n".join(rows[name] for name in LIBRARIES if name in rows) + "\n")
    print(f"\n{TABLE.read_text()}")


@pytest.mark.parametrize("name", LIBRARIES)
def test_library_goes_on_after_each_fault_without_a_line_for_the_platform(
    lab: Lab, name: str, table: dict[str, str]
) -> None:
    training = Training(lab, name)
    job_id = training.job_id
    lab.wait(job_id, "RUNNING", 300)
    training.train(300)
    runs = training.runs
    cells = []
    for fault, culprit, inject in training.faults():
        before = training.charges
        took_s, last, first = training.meet(inject)
        after = training.charges
        if fault.startswith("kill"):
            assert after == before | {str(culprit): before.get(str(culprit), 0) + 1}, lab.story(
                job_id
            )
        elif fault.startswith("hang"):
            is_found = "printed nothing for" in training.verdict
            assert sum(after.values()) == sum(before.values()) + 1, lab.story(job_id)
            # JAX and TensorFlow abort without heartbeats, before the limit: the member that did not
            # answer pays.
            if not is_found:
                assert after[str(culprit)] == before.get(str(culprit), 0) + 1, lab.story(job_id)
            assert is_found or f"{culprit.words} did not answer, and" in training.verdict, (
                training.verdict
            )
            for replica_id in training.replicas if is_found else ():
                assert "Fatal Python error: Aborted" in lab.console(job_id, replica_id)
        else:
            assert after == before, lab.story(job_id)
        assert culprit.words in training.verdict, training.verdict
        assert training.runs == runs, lab.story(job_id)
        cells.append(f"{fault} {took_s:.0f} s")
        paid = sum(after.values()) - sum(before.values())
        steps = f"step {last} -> {first}"
        print(
            f"{name}: {cells[-1]}, {steps}, {paid} charged, load {os.getloadavg()[0]:.0f}",
            flush=True,
        )
        print(training.verdict, flush=True)
    lab.until(lambda: training.shown("progress"), CURVE_S)
    progress = training.shown("progress")
    lab.finish(job_id)
    lab.wait_for_success(job_id, 240)
    if name == "goodput":
        recorded = training.shown("recordedGoodput", "--goodput")
        assert recorded["lastStep"] == STEPS
        assert "wasted_progress_from_disruption" in recorded["unproductive"]  # type: ignore[operator]
    shown = ", ".join(sorted(key for key in progress if key in ("share", "step", "metrics")))
    table[name] = f"| `{name}` | {', '.join(cells)} | {shown} |"
    assert {"step"} <= progress.keys() or {"metrics"} <= progress.keys(), progress
