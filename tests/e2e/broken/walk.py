"""Run a broken program as its user would, and look for its cause with one command.

    python -m tests.e2e.broken.walk            all programs, on the local stack of this shell
    python -m tests.e2e.broken.walk abort      one program

The table has, for each program: its starts, the seconds from the submission to the end of the job,
its cost at list prices (after `trainmaster prices update`), the command that shows the cause, and
what this command lacks. The VMs of the local stack are paid as those of Google Cloud.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from tests.e2e.broken.programs import PROGRAMS, SUBMIT, WHY, BrokenProgram

SEEN_AFTER_FAILURES: Final = 3
"""A job that the rules do not end soon is cancelled when it has failed so often."""
POLL_S: Final = 1.0
TIMEOUT_S: Final = 900.0
AT_ONCE: Final = 3

Run = Callable[..., subprocess.CompletedProcess[str]]
"""Runs `trainmaster` with arguments."""


@dataclass(frozen=True, slots=True)
class Walk:
    """What a user saw."""

    program: BrokenProgram
    state: str
    """State of the job at its end; empty: it was refused."""
    lives: int
    """Starts of the program."""
    seconds: float
    """From the submission to the end of the job."""
    output: str
    """What the one command printed."""
    cost: str = ""
    """Of the job, with its currency; empty: there is no price list, or it was refused."""

    @property
    def missing(self) -> tuple[str, ...]:
        """What the command did not show."""
        return tuple(text for text in self.program.shows if text not in self.output)


def walk(program: BrokenProgram, job_id: str, run: Run, folder: Path) -> Walk:
    """Submit the program, wait for the end of its job, and ask for the cause."""
    for name, content in program.files.items():
        file = folder / "program" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content)
    document = {"trainingInput": _training_input(program), "trainmaster": dict(program.extension)}
    config = folder / "job.yaml"
    config.write_text(yaml.safe_dump(document))
    started = time.monotonic()
    submitted = run(
        "submit",
        job_id,
        f"--config={config}",
        f"--folder={folder / 'program'}",
        f"--runtime-version={program.runtime}",
        *program.options,
        "--",
        *program.command,
    )
    if program.seen_in == SUBMIT:
        assert submitted.returncode != 0, f"{program.name} was submitted"
        return Walk(
            program, state="", lives=0, seconds=time.monotonic() - started, output=submitted.stderr
        )
    assert submitted.returncode == 0, submitted.stderr
    state = _wait(job_id, program, run)
    seconds = time.monotonic() - started
    output = run(WHY, job_id).stdout
    return Walk(program, state, _lives(job_id, run), seconds, output, _cost(job_id, run))


def _training_input(program: BrokenProgram) -> dict[str, object]:
    given: dict[str, object] = {"region": "us-central1"}
    if program.workers:
        given |= {
            "scaleTier": "CUSTOM",
            "masterType": "n1-standard-4",
            "workerType": "n1-standard-4",
            "workerCount": program.workers,
        }
    return given


def _wait(job_id: str, program: BrokenProgram, run: Run) -> str:
    """Return the state at the end.

    A job whose failure may pass is cancelled when its user would cancel it.
    """
    if program.ends != "CANCELLED":
        return str(json.loads(run("wait", job_id, "--format=json").stdout)["state"])
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        described = run("describe", job_id, "--format=json")
        if described.returncode:  # a machine under load may not answer in time
            time.sleep(POLL_S)
            continue
        view = json.loads(described.stdout)
        state = str(view["state"])
        if state in ("SUCCEEDED", "FAILED", "CANCELLED"):
            return state
        failing = view["trainmaster"].get("failing", {})
        if failing.get("failures", 0) >= SEEN_AFTER_FAILURES:
            run("cancel", job_id)
        time.sleep(POLL_S)
    raise AssertionError(f"{job_id} has not ended after {TIMEOUT_S:g} s")


def _lives(job_id: str, run: Run) -> int:
    """Return how often replicas of the job have started their program: each start has an end."""
    entries = json.loads(run("ledger", job_id, "--format=json").stdout)
    return sum(1 for entry in entries if entry["event"].endswith("-exit"))


def _cost(job_id: str, run: Run) -> str:
    described = run("describe", job_id, "--format=json")
    cost = json.loads(described.stdout or "{}").get("trainmaster", {}).get("cost", {})
    return f"{float(cost['amount']):.4f} {cost['currency']}" if "amount" in cost else ""


def main(names: list[str]) -> None:
    """Walk the programs with these names, or all."""
    chosen = [program for program in PROGRAMS if not names or program.name in names]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trainmaster.cli.main", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def walk_one(program: BrokenProgram) -> str:
        with tempfile.TemporaryDirectory() as folder:
            try:
                seen = walk(program, f"{program.name}_{int(time.time())}", run, Path(folder))
            except AssertionError as error:
                return f"{program.name}: {error}"
        lacks = f"  lacks {list(seen.missing)}" if seen.missing else ""
        return (
            f"{program.name}: {seen.state or 'refused'}, {seen.lives} starts,"
            f" {seen.seconds:.0f} s, {seen.cost or 'cost not known'}, {program.seen_in}{lacks}"
        )

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for done in as_completed([pool.submit(walk_one, program) for program in chosen]):
            print(done.result(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
