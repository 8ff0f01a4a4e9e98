"""`trainmaster simulate JOB.yaml`: forecast a job whose VMs are preempted, at no cost.

Runs the real rules and flows in virtual time, with models of the VMs and of the training (see
`trainmaster_local.simulator`).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from trainmaster.cli.job_files import check_document, read_job
from trainmaster.cli.options import OutputFormat, parse_duration
from trainmaster.cli.output import Format, print_json, print_table, say
from trainmaster.errors import PermanentError
from trainmaster.jobspec.accept import AcceptedSpec, accept
from trainmaster.jobspec.job_document import field_at, with_job_id, with_time_in_job_id
from trainmaster.jobspec.reading.document_kinds import AI_PLATFORM, detect_kind
from trainmaster.jobspec.reading.field_names import TRAINING_INPUT
from trainmaster.wiring.folders import job_of_folder

if TYPE_CHECKING:
    from trainmaster_local.simulator.forecast import Assumptions, Forecast

DEFAULT_JOB_ID: Final = "simulated"
"""Id of a job whose file has none."""
PROGRAM_FIELDS: Final = ("packageUris", "pythonModule", "masterConfig")
"""Fields that say which program a job runs; one of them is enough."""


def simulate(
    job_file: Annotated[
        Path, typer.Argument(help="Job file.", metavar="FILE", exists=True, dir_okay=False)
    ],
    seeds: Annotated[
        int, typer.Option(min=1, max=100_000, metavar="NUMBER", help="Number of simulated runs.")
    ] = 200,
    preemptions_per_hour: Annotated[
        float, typer.Option(min=0.0, max=60.0, metavar="NUMBER", help="Preemptions of each VM.")
    ] = 0.05,
    duration: Annotated[
        str,
        typer.Option(metavar="DURATION", help="Training time without preemptions: 90m, 6h, 2d."),
    ] = "6h",
    checkpoint_every: Annotated[
        float,
        typer.Option(
            min=0.0,
            metavar="MINUTES",
            help="Minutes between checkpoints; 0 means that no work is ever lost.",
        ),
    ] = 10.0,
    form: OutputFormat = Format.TABLE,
) -> None:
    """Forecast a job under preemptions: how it ends, how long it takes, how much work is lost.

    Runs the job many times in virtual time. Nothing is submitted, and no project is needed.
    """
    from trainmaster_local.simulator.forecast import Assumptions

    document = _with_program(read_job(str(job_file), config=None)[1])
    document = with_time_in_job_id(document, datetime.now(UTC))
    document = with_job_id(document, check_document(document, default_job_id=DEFAULT_JOB_ID))
    spec = accept(document, default_job_id=None)
    assumptions = Assumptions(
        preemptions_per_hour, parse_duration(duration, "--duration"), checkpoint_every * 60
    )
    result = run_simulation(spec, document, assumptions, seeds)
    if form is Format.JSON:
        print_json(asdict(result))
    else:
        _print_forecast(result, spec, preemptions_per_hour)


def _with_program(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document with a program, if `submit --folder` would add it.

    The simulation runs none.
    """
    if detect_kind(document) is not AI_PLATFORM:
        return document
    fields = [field_at(document, (TRAINING_INPUT, name)) for name in PROGRAM_FIELDS]
    return document if any(fields) else job_of_folder(document, ["python"])


def run_simulation(
    spec: AcceptedSpec, document: Mapping[str, Any], assumptions: Assumptions, runs: int
) -> Forecast:
    """Simulate a job `runs` times, and return the forecast.

    `document`: its job file. `spec`: the same, as it was accepted. Turns logging off for the rest
    of the process. Raises PermanentError if a run breaks an invariant, which is a bug in
    Trainmaster.
    """
    from trainmaster_local.simulator import forecast
    from trainmaster_local.simulator.scenarios.scenario import HistoryError

    logging.disable()
    scenario = forecast.forecast_scenario(spec, json.dumps(document).encode(), assumptions)
    try:
        return forecast.summarize(forecast.run_histories(scenario, runs))
    except HistoryError as error:
        text = "the simulation found a bug in Trainmaster; please report this output"
        raise PermanentError(f"{text}:\n{error}") from None


def _print_forecast(forecast: Forecast, spec: AcceptedSpec, preemptions_per_hour: float) -> None:
    """Print the forecast: shares of the final states, then medians and 90th percentiles."""
    vms = sum(group.count for group in spec.plan.groups)
    say(
        f"{forecast.histories} simulated runs of {spec.job_id}: {vms} VMs, each preempted "
        f"{preemptions_per_hour:g} times per hour"
    )
    for state, count in forecast.states.items():
        say(f"{state}: {count / forecast.histories:.1%}")
    for message, count in forecast.messages.items():
        say(f"{count} x {message.splitlines()[0]}")
    rows = (
        ("hours until the end", forecast.wall_h),
        ("VM-hours", forecast.vm_h),
        ("hours of training lost", forecast.lost_h),
        ("restarts of programs", forecast.restarts),
        ("VMs replaced", forecast.replacements),
        ("reruns of the job", forecast.reruns),
    )
    print_table(
        ["", "p50", "p90"], [[name, f"{value.p50:.2f}", f"{value.p90:.2f}"] for name, value in rows]
    )
