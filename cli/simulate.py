"""`trainmaster simulate JOB.yaml`: what would become of this job if its VMs were taken away, before it costs anything.

The real rules and flows in virtual time, over models of the machines and of the training (`simulator`).
"""

from __future__ import annotations

import json
import logging
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Final

import typer

from cli.output import Format, print_json, print_table, say
from shared.errors import PermanentError
from shared.jobspec import AcceptedSpec, InvalidJob, accept, parse_document

DEFAULT_JOB_ID: Final = "simulated"

SPANS: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def span(text: str) -> float:
    """`90m`, `2h`, `1.5d`, or seconds; as seconds."""
    unit = SPANS.get(text[-1:])
    try:
        value = float(text[:-1]) * unit if unit else float(text)
    except ValueError:
        value = 0.0
    if value <= 0:
        raise typer.BadParameter(f"{text!r} is no time: give 90m, 2h or 1.5d")
    return value


def simulate(
    job_file: Annotated[Path, typer.Argument(help="A job file.", metavar="JOB.yaml", exists=True, dir_okay=False)],
    seeds: Annotated[int, typer.Option(min=1, max=100_000, help="How many histories.")] = 200,
    preemptions_per_hour: Annotated[float, typer.Option(min=0.0, max=60.0, help="Of each VM.")] = 0.05,
    duration: Annotated[str, typer.Option(help="How long the training takes undisturbed: 90m, 6h, 2d.")] = "6h",
    checkpoint_every: Annotated[float, typer.Option(min=0.0, help="Minutes; 0: no work is ever lost.")] = 10.0,
    form: Annotated[Format, typer.Option("--format", help="How to print it.")] = Format.TABLE,
) -> None:
    """Run a job file through seeded histories in virtual time: how it ends, how long it takes, what is lost."""
    from simulator import forecast
    from simulator.scenarios.scenario import HistoryError

    logging.disable()
    spec, message = _accepted(job_file)
    question = forecast.Question(preemptions_per_hour, span(duration), checkpoint_every * 60)
    try:
        answer = forecast.report(forecast.simulate(forecast.scenario(spec, message, question), seeds))
    except HistoryError as error:
        raise PermanentError(f"this history should not have been possible, please report it:\n{error}") from None
    if form is Format.JSON:
        print_json(asdict(answer))
        return
    count = sum(group.count for group in spec.plan.groups)
    say(f"{answer.histories} histories of {spec.job_id}: {count} VMs, each lost {preemptions_per_hour:g} times an hour")
    for state, times in answer.ends.items():
        say(f"{state}: {times / answer.histories:.1%}")
    for text, times in answer.messages.items():
        say(f"{times} x {text.splitlines()[0]}")
    print_table(
        ["", "p50", "p90"],
        [
            [name, f"{spread.p50:.2f}", f"{spread.p90:.2f}"]
            for name, spread in (
                ("hours to the end", answer.wall_h),
                ("VM-hours", answer.vm_h),
                ("hours of training lost", answer.lost_h),
                ("restarts of programs", answer.restarts),
                ("VMs replaced", answer.replacements),
                ("reruns of the job", answer.reruns),
            )
        ],
    )


def _accepted(job_file: Path) -> tuple[AcceptedSpec, bytes]:
    """The spec, and the message that submits it."""
    try:
        document = dict(parse_document(job_file.read_bytes(), job_file.name))
        spec = accept(document, default_job_id=DEFAULT_JOB_ID)
    except InvalidJob as invalid:
        raise PermanentError(str(invalid)) from None
    document.pop("job_id", None)
    return spec, json.dumps({**document, "jobId": spec.job_id}).encode()
