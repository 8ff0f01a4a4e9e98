"""The runtime that a program needs, by the frameworks that its files import."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from trainmaster.program_files.command import LAUNCHERS, entry_of
from trainmaster.program_files.findings import ProgramFiles
from trainmaster.program_files.source_files import Import, Sources
from trainmaster.program_files.started_commands import started_commands

PYTORCH: Final = "pytorch-2.13"
"""Runtime of programs of PyTorch."""
_RUNTIMES: Final = {
    PYTORCH: (
        "torch",
        "torchvision",
        "torchaudio",
        "lightning",
        "pytorch_lightning",
        "accelerate",
        "deepspeed",
    ),
    "xgboost-3.2": ("xgboost",),
    "scikit-learn-1.9": ("sklearn", "jax"),
}
"""Runtime version → modules that ask for it.

If a program imports modules of several, the first version in this order is chosen. There is no
runtime of JAX: its packages are installed on the smallest one.
"""
_TENSORFLOW: Final = ("tensorflow", "keras", "tf_keras")
"""Modules of the default runtime."""
_PYTHON: Final = "3.12"
"""With which files are parsed as long as no runtime is chosen."""


@dataclass(frozen=True, slots=True)
class RuntimeChoice:
    """A runtime, and why it was chosen."""

    version: str
    reason: str
    """`train.py:1 imports torch`."""


def choose_runtime(command: Sequence[str], files: ProgramFiles) -> RuntimeChoice | None:
    """Return the runtime of a program whose job names none.

    None: the default runtime, because the program imports TensorFlow, alone or with others, or
    because its imports ask for no runtime.
    """
    commands = list(started_commands(command, files))
    entries = dict.fromkeys(entry_of(started, files) for started in commands)
    imports: dict[str, Import] = {}
    for entry in filter(None, entries):
        sources = Sources(files, _PYTHON)
        for file in sorted(sources.closure(entry, certain_only=False)):
            for imported in sources.imports(file, entry):
                imports.setdefault(imported.module.partition(".")[0], imported)
    if any(module in imports for module in _TENSORFLOW):
        return None
    for version, modules in _RUNTIMES.items():
        found = next((imports[module] for module in modules if module in imports), None)
        if found is not None:
            module = found.module.partition(".")[0]
            return RuntimeChoice(version, f"{found.file}:{found.line} imports {module}")
    launcher = next((started[0] for started in commands if started[0] in LAUNCHERS), None)
    return RuntimeChoice(PYTORCH, f"{launcher} belongs to PyTorch") if launcher else None
