"""`make bench-kept`: measure how much sooner a program starts on kept machines than on new ones.

A local stack with Google's durations runs jobs as a user submits them, one after another on one VM:

    new machines          nothing is kept
    the same folder       no package changes
    an edited program     the job's own package changes
    changed requirements  the job has a dependency that no job before had
    another runtime       no kept machine fits: new ones, and `why` says so
    eight trials          a tuning job, one trial of ten seconds after another

A figure is the time from the acceptance of a job until its program writes its first line; of a
tuning job until its end. Each is checked: a job that should take kept machines and did not, or the
other way round, has no figure.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from bench import report
from bench.peers.run import NotMeasured
from bench.peers.system import PROGRAMS
from bench.peers.trainmaster import MACHINE, REGION, STUDY
from bench.report import OURS, Row
from trainmaster_emulators.checkout import ROOT
from trainmaster_emulators.process.stack_config import StackConfig
from trainmaster_emulators.stack import client_configuration
from trainmaster_emulators.stack import stack as stacks

FOLDER: Final = ROOT / "build" / "kept"
"""Folder of a run, which has the stack's logs, and what programs wrote."""
RUNTIME: Final = "scikit-learn-1.9"
OTHER_RUNTIME: Final = "2.21"
REQUIREMENT: Final = "humanize==4.12.3\n"
"""A package without dependencies that neither runtime has."""
KEEP: Final = "5m"
"""Time for which a job keeps its machines."""
KEEP_TRIALS: Final = "120s"
"""Time for which a trial of a tuning job keeps its machines."""
COMMAND_S: Final = 900.0
"""Longest time of one command, on a busy machine."""
TRIALS: Final = 8
TRIAL_S: Final = 10.0
PROGRAM: Final = """\
import pathlib, sys, time

pathlib.Path(sys.argv[1]).write_text(str(time.time()))
# {edit}
"""
PARTS: Final = ("starts", "trials")
FIRST_LINE: Final = "first line after the acceptance: "
STUDY_ROW: Final = "eight trials of ten seconds, one after another: "


@dataclass(slots=True)
class Bench:
    """A stack, and the user who submits jobs to it."""

    environment: Mapping[str, str]
    bucket: str
    folder: Path
    rows: dict[str, Row] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def trainmaster(self, *arguments: str) -> str:
        """Run the command line, and return what it prints. Raises NotMeasured if it fails."""
        command = [str(ROOT / ".venv" / "bin" / "trainmaster"), *arguments]
        done = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            check=False,
        )
        if done.returncode:
            raise NotMeasured(f"`trainmaster {' '.join(arguments[:2])}` failed: {done.stderr}")
        return done.stdout

    def add(self, name: str, value: float, reason: str = "") -> None:
        """Add a value in seconds to the row of this name, and print it with the reason."""
        row = self.rows.setdefault(name, Row(name, "s"))
        row.values.setdefault(OURS, []).append(round(value, 1))
        row.loads.append(round(os.getloadavg()[0], 1))
        if reason:
            row.reasons[OURS] = reason
        sys.stdout.write(f"{name}: {value:.1f} s (load {row.loads[-1]}) {reason}\n")
        sys.stdout.flush()

    def run_program(
        self, *, edit: int, requirements: str = "", runtime: str = RUNTIME
    ) -> tuple[str, float]:
        """Run a job that keeps its machines. Return its id, and the seconds from its acceptance to
        the program's first line.
        """
        number = next(self._numbers)
        job_id, written = f"kept_{number}", self.folder / f"{number}.line"
        program = self.folder / "program"
        shutil.rmtree(program, ignore_errors=True)
        program.mkdir()
        (program / "train.py").write_text(PROGRAM.format(edit=edit), encoding="utf-8")
        if requirements:
            (program / "requirements.txt").write_text(requirements, encoding="utf-8")
        options = (f"--folder={program}", f"--region={REGION}", f"--runtime-version={runtime}")
        command = ("--", "python", "train.py", str(written))
        self.trainmaster("submit", job_id, *options, f"--keep={KEEP}", "--wait", *command)
        accepted_at = timestamp(self.view(job_id)["createTime"])
        return job_id, float(written.read_text(encoding="utf-8")) - accepted_at

    def tune(self, keep: str = "") -> float:
        """Run a tuning job, and return the seconds from its acceptance to its end."""
        number = next(self._numbers)
        job_id, moments = f"tune_{number}", self.folder / f"{number}.moments"
        package = self.folder / "trainer"
        package.mkdir(exist_ok=True)
        (package / "__init__.py").touch()
        shutil.copy(PROGRAMS / "trial.py", package)
        study = {**STUDY, "maxTrials": TRIALS, "maxParallelTrials": 1}
        training = {
            **MACHINE,
            "pythonModule": "trainer.trial",
            "runtimeVersion": RUNTIME,
            "region": REGION,
            "hyperparameters": study,
        }
        extension = {"trainmaster": {"keepMachines": keep}} if keep else {}
        config = self.folder / f"{job_id}.yaml"
        config.write_text(yaml.safe_dump({"trainingInput": training, **extension}))
        where = (f"--package-path={package}", f"--staging-bucket=gs://{self.bucket}")
        arguments = ("--", str(moments), f"--seconds={TRIAL_S}")
        self.trainmaster("submit", job_id, f"--config={config}", *where, "--wait", *arguments)
        ends = sum('"end"' in line for line in moments.read_text(encoding="ascii").splitlines())
        if ends != TRIALS:
            raise NotMeasured(f"{ends} of {TRIALS} trials have ended")
        view = self.view(job_id)
        return timestamp(view["endTime"]) - timestamp(view["createTime"])

    def view(self, job_id: str) -> Any:
        return json.loads(self.trainmaster("describe", job_id, "--format=json"))

    def choice(self, job_id: str) -> str:
        """Return what `why` says about kept machines."""
        text = self.trainmaster("why", job_id)
        return next((line.strip() for line in text.splitlines() if "kept machine" in line), "")

    def release_all(self) -> None:
        """Release all kept machines, so that the next job gets new ones."""
        for row in json.loads(self.trainmaster("machines", "--kept", "--format=json")):
            self.trainmaster("machines", "--release", row["jobId"])


def timestamp(text: str) -> float:
    """Return a time of the API in seconds since 1970."""
    return datetime.fromisoformat(text).timestamp()


def measure_starts(bench: Bench, round_number: int) -> None:
    """Run five jobs, one after another, of which each takes the machines of the one before."""
    edits = itertools.count(10 * round_number)
    edit = next(edits)
    job_id, seconds = bench.run_program(edit=edit)
    if "takes" in bench.choice(job_id):
        raise NotMeasured(f"{job_id} took kept machines, and should not")
    bench.add(f"{FIRST_LINE}new machines", seconds)
    warm = {
        "kept, the same folder": partial(bench.run_program, edit=edit),
        "kept, an edited program": partial(bench.run_program, edit=next(edits)),
        "kept, changed requirements": partial(
            bench.run_program, edit=next(edits), requirements=REQUIREMENT
        ),
    }
    for name, run in warm.items():
        job_id, seconds = run()
        choice = bench.choice(job_id)
        if "takes" not in choice:
            raise NotMeasured(f"{job_id} took no kept machines: {choice}")
        bench.add(f"{FIRST_LINE}{name}", seconds)
    other_id, seconds = bench.run_program(edit=next(edits), runtime=OTHER_RUNTIME)
    choice = bench.choice(other_id)
    if "takes" in choice or "the runtime is" not in choice:
        raise NotMeasured(f"{other_id} should name the runtime: {choice}")
    bench.add(f"{FIRST_LINE}kept with another runtime, so new ones", seconds, _reason(choice))
    bench.release_all()


def _reason(choice: str) -> str:
    """Return the words of the decision, without the time and the id of the job that keeps."""
    words, *_ = choice[choice.index("the runtime is") :].split(". ", maxsplit=1)
    return f"({words.strip().rstrip('.')})"


def measure_trials(bench: Bench) -> None:
    """Run a tuning job whose trials get new machines, and one whose trials keep them."""
    bench.add(f"{STUDY_ROW}new machines for each", bench.tune())
    bench.add(f"{STUDY_ROW}kept machines", bench.tune(KEEP_TRIALS))


@contextmanager
def running(folder: Path, time_scale: float) -> Iterator[Bench]:
    """Start a realistic stack in the folder, and stop it."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    state_dir = folder / "stack"
    config = StackConfig(realistic=True, time_scale=time_scale)
    with stacks.running_stack(state_dir, config) as state:
        environment = client_configuration.environment(state_dir, state)
        yield Bench(environment, state.config.bucket, folder)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.kept_machines", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="of the jobs without trials")
    parser.add_argument(
        "--only", nargs="+", choices=PARTS, default=PARTS, help="measure only these"
    )
    parser.add_argument(
        "--time-scale", type=float, default=1.0, help="factor of Google's durations, to try it out"
    )
    parser.add_argument("--page", action="store_true", help="write docs/benchmarks.json")
    options = parser.parse_args()
    if options.page and options.time_scale != 1:
        parser.error("--page stores figures with Google's durations only: leave out --time-scale")
    # SIGTERM ends what was started, as Ctrl-C does.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    began = time.monotonic()
    with running(FOLDER, options.time_scale) as bench:
        if "starts" in options.only:
            for round_number in range(options.rounds):
                measure_starts(bench, round_number)
        if "trials" in options.only:
            measure_trials(bench)
    sys.stdout.write(f"({time.monotonic() - began:.0f} s)\n")
    if options.page:
        report.store(bench.rows.values())


if __name__ == "__main__":
    main()
