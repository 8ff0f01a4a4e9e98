"""Recognise files of other tools, which are no job files.

`jobspec/foreign` says which job file a task of SkyPilot or dstack means; of the others the
documentation says it. Sources (November 2026): "SkyPilot YAML" in SkyPilot's documentation,
"Reference: task" in dstack's, and those of the rows of `_OTHERS` and `_SCRIPTS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from trainmaster.jobspec.reading.json_limits import invalid

SKYPILOT: Final = "SkyPilot"
DSTACK: Final = "dstack"
TITLES: Final = {SKYPILOT: "a task of SkyPilot", DSTACK: "a configuration of dstack"}
_BESIDE_RUN: Final = ("resources", "setup", "num_nodes", "workdir", "file_mounts", "envs")
"""Fields of which a task of SkyPilot has at least one beside `run`."""
_TYPES: Final = ("task", "dev-environment", "service")
"""Values of `type` of dstack's configurations."""
_BESIDE_ENTRYPOINT: Final = ("runtime_env", "submission_id", "compute_config", "working_dir")
"""Fields of which a job of Ray or Anyscale has at least one beside `entrypoint`."""
_TRANSLATE: Final = (
    'trainmaster submit --folder . -- COMMAND; the page "from-torchrun" of the documentation says'
    " what its other fields are here"
)


class _Other(NamedTuple):
    """A kind of file that is recognised, and not converted."""

    title: str
    matches: Callable[[Mapping[str, object]], bool]


def _is_azure(document: Mapping[str, object]) -> bool:
    schema, environment = document.get("$schema"), document.get("environment")
    has_schema = isinstance(schema, str) and "azuremlschemas" in schema
    has_environment = isinstance(environment, str) and environment.startswith("azureml:")
    return has_schema or (has_environment and "command" in document)


def _is_sagemaker(document: Mapping[str, object]) -> bool:
    is_training = "TrainingJobName" in document or "AlgorithmSpecification" in document
    return is_training or "HyperParameterTuningJobName" in document


def _is_determined(document: Mapping[str, object]) -> bool:
    searcher = document.get("searcher")
    return isinstance(searcher, Mapping) and "name" in searcher and "entrypoint" in document


def _is_ray(document: Mapping[str, object]) -> bool:
    has_command = isinstance(document.get("entrypoint"), str)
    return has_command and any(name in document for name in _BESIDE_ENTRYPOINT)


def _is_compose(document: Mapping[str, object]) -> bool:
    services = document.get("services")
    return (
        isinstance(services, Mapping)
        and bool(services)
        and all(isinstance(service, Mapping) for service in services.values())
    )


_OTHERS: Final = (
    # "CLI (v2) command job YAML schema".
    _Other("a job of Azure ML", _is_azure),
    # "CreateTrainingJob" and "CreateHyperParameterTuningJob" in the API reference.
    _Other("a request of SageMaker", _is_sagemaker),
    # "Experiment Configuration Reference"; before Ray, whose jobs have an entry point, too.
    _Other("an experiment of Determined", _is_determined),
    # "Ray Jobs REST API", and "Job API Reference" of Anyscale.
    _Other("a job of Ray", _is_ray),
    # "Compose file reference".
    _Other("a file of Docker Compose", _is_compose),
    # "The Notebook file format" of nbformat.
    _Other(
        "a notebook of Jupyter", lambda document: "cells" in document and "nbformat" in document
    ),
    # "REST Resource: projects.locations.jobs" of Batch.
    _Other("a job of Cloud Batch", lambda document: isinstance(document.get("taskGroups"), list)),
)
_SCRIPTS: Final = {"SBATCH": "Slurm", "PBS": "PBS", "BSUB": "LSF"}
"""Word of the comments in which a batch script has its options, and the scheduler. Sources: the
manuals of `sbatch`, `qsub` and `bsub`.
"""
_INTERPRETER: Final = re.compile(r"#![ \t]*/")
_OPTION: Final = re.compile(rf"^#({'|'.join(_SCRIPTS)})\s", re.MULTILINE)


def tool_of(document: Mapping[str, object]) -> str | None:
    """Return the tool whose file the document is, if it can be converted.

    None: it may be a job file.
    """
    if isinstance(document.get("run"), str) and any(name in document for name in _BESIDE_RUN):
        return SKYPILOT
    if document.get("type") in _TYPES and isinstance(document.get("commands"), list):
        return DSTACK
    return None


def refuse_foreign_file(document: Mapping[str, object]) -> None:
    """Raise InvalidJob for a file of another tool."""
    tool = tool_of(document)
    if tool:
        raise invalid(
            f"this is {TITLES[tool]}, and no job file", "trainmaster convert task.yaml > job.yaml"
        )
    refuse_unconverted_file(document)


def refuse_unconverted_file(document: Mapping[str, object]) -> None:
    """Raise InvalidJob for a file of a tool whose files are not converted."""
    for other in _OTHERS:
        if other.matches(document):
            raise invalid(f"this is {other.title}, and no job file", _TRANSLATE)


def refuse_script(text: str) -> None:
    """Raise InvalidJob for a script, such as one for `sbatch`: its first line names a program."""
    if not _INTERPRETER.match(text):
        return
    option = _OPTION.search(text)
    title = f"a batch script of {_SCRIPTS[option[1]]}" if option else "a script"
    raise invalid(f"this is {title}, and no job file", _TRANSLATE)
