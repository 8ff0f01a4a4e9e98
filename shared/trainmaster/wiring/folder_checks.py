"""Checks of a folder before it is packed: its command, Python files, requirements and runtime.

`trainmaster submit --folder` and the Python client call them. A job of a folder runs a command in a
copy of it on each VM.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from trainmaster.errors import PermanentError
from trainmaster.jobspec.accept import accept
from trainmaster.jobspec.job_document import field_at, with_field
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.jobspec.reading.field_names import EXTENSION, TRAINING_INPUT
from trainmaster.packaging.folder_files import LEADS_OUT, LINKS_FOLDER
from trainmaster.program_files.command import check_command, entry_of
from trainmaster.program_files.findings import LeftOut, ProgramFiles, ProgramFinding
from trainmaster.program_files.requirements import check_imports, check_pins, runtime_of
from trainmaster.program_files.runtime_choice import choose_runtime
from trainmaster.program_files.source_files import Sources
from trainmaster.wiring.folders import (
    IGNORE_FILE,
    job_of_folder,
    list_folder_files,
    read_requirements,
)

_SOFTWARE_FIELDS: Final = (
    (TRAINING_INPUT, "runtimeVersion"),
    (TRAINING_INPUT, "masterConfig", "imageUri"),
    (EXTENSION, "image"),
)
"""Fields with which a job names the software of its VMs or containers itself."""
PLACE: Final = "requirements.txt"
"""File in which a folder names the packages that it requires."""


def check_folder(
    document: Mapping[str, Any], folder: Path, command: Sequence[str] = ()
) -> list[ProgramFinding]:
    """Return what is wrong with the folder's program; empty for a job that is not valid.

    `command`: as for `with_folder`. Raises PermanentError for a requirements.txt that cannot be
    packed.
    """
    command = command or field_at(document, (TRAINING_INPUT, "args")) or ()
    if isinstance(command, str) or not command:
        return []
    try:
        spec = accept(job_of_folder(dict(document), command), default_job_id="folder")
    except InvalidJob:
        return []
    files = _files_of(folder)
    runtime = runtime_of(spec.plan)
    requirements = read_requirements(folder)
    findings = [*check_command(command, files, requirements)]
    entry = entry_of(command, files)
    sources = Sources(files, runtime.python)
    findings += sources.check_syntax(entry, files.names)
    if runtime.requirements:  # an image of the user's own may have anything
        findings += check_pins(requirements, runtime, PLACE)
        has_other_packages = bool(field_at(document, (TRAINING_INPUT, "packageUris")))
        if entry is not None and not has_other_packages:
            findings += check_imports(sources, entry, files, requirements, runtime, PLACE)
    return findings


def checked_words(document: Mapping[str, Any], folder: Path) -> str:
    """Return what `check_folder` checks, in words; empty for a job that is not valid."""
    command = field_at(document, (TRAINING_INPUT, "args")) or ()
    if isinstance(command, str) or not command:
        return ""
    try:
        spec = accept(job_of_folder(dict(document), command), default_job_id="folder")
    except InvalidJob:
        return ""
    runtime = runtime_of(spec.plan)
    words = "folder: its files have what the command starts, and their syntax is right"
    if not runtime.requirements or not read_requirements(folder):
        return words
    return (
        f"{words}; requirements.txt fits the runtime {runtime.name}. Whether the package index has"
        " its packages shows when a VM installs them"
    )


def with_chosen_runtime(
    document: dict[str, Any], folder: Path, command: Sequence[str] = ()
) -> tuple[dict[str, Any], str]:
    """Return the job with the runtime that the folder's imports ask for, and why, in one line.

    The line is empty if the job names a runtime, an image or a TPU itself, or if the default
    runtime fits. `command`: as for `with_folder`.
    """
    command = command or field_at(document, (TRAINING_INPUT, "args")) or ()
    names_software = any(field_at(document, path) for path in _SOFTWARE_FIELDS)
    if isinstance(command, str) or not command or names_software:
        return document, ""
    try:
        spec = accept(job_of_folder(dict(document), command), default_job_id="folder")
    except InvalidJob:
        return document, ""
    if any(group.tpu for group in spec.plan.groups):
        return document, ""
    choice = choose_runtime(list(command), _files_of(folder))
    if choice is None:
        return document, ""
    chosen = with_field(document, (TRAINING_INPUT, "runtimeVersion"), choice.version)
    return chosen, (
        f"runtime: {choice.version}, because {choice.reason}; --runtime-version chooses another one"
    )


def _files_of(folder: Path) -> ProgramFiles:
    """Return the files of the folder that are packed, and those that are left out."""
    listed = list_folder_files(folder)
    paths = listed.files
    left_out = {name: LeftOut(why, _remedy(name, why)) for name, why in listed.left_out.items()}
    return ProgramFiles(frozenset(paths), lambda name: paths[name].read_bytes(), left_out)


def _remedy(name: str, why: str) -> str:
    """Return what to do so that a file is packed that is left out for this reason."""
    if why in (LEADS_OUT, LINKS_FOLDER):
        return f"replace the link {name} by a copy of what it leads to"
    return f"add the line !{name} to {IGNORE_FILE}"


def refuse_folder(findings: Sequence[ProgramFinding]) -> None:
    """Raise PermanentError with everything that must fail."""
    refused = [str(finding) for finding in findings if finding.must_fail]
    if refused:
        lines = "".join(f"\n  {text}" for text in refused)
        raise PermanentError(f"the program cannot run, and was not submitted:{lines}")
