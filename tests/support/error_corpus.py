"""The corpus of errors that programs raised, which `tests/unit/program_errors/corpus.tsv` holds.

Its errors are split by a hash of their messages: the even half was looked at while the rules of
`trainmaster.program_errors` were written, the odd half was only counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Final

from trainmaster.program_errors.meaning import Place

CORPUS: Final = Path(__file__).parents[1] / "unit" / "program_errors" / "corpus.tsv"
PASSING: Final = ("lost peer", "silent peer", "transient")
LASTING: Final = ("bug", "setting", "out of memory")


@dataclass(frozen=True)
class LabelledError:
    """One error with the judgement of a person."""

    label: str
    machine: str
    """`gpu`, `tpu` or `cpu`."""
    job: str
    """`one` machine, or `several`."""
    type: str
    message: str
    causes: tuple[str, ...]
    origin: str
    """Address of a public report, or package, version and file."""
    exception: str
    """Why the rules may judge it otherwise; empty: they must not."""

    @property
    def is_passing(self) -> bool:
        return self.label in PASSING

    @property
    def is_held_out(self) -> bool:
        """Whether the error was not looked at while the rules were written."""
        return int(sha256(self.message.encode()).hexdigest(), 16) % 2 == 1

    @property
    def place(self) -> Place:
        return Place(self.machine != "cpu", self.job == "several")


def read_corpus() -> list[LabelledError]:
    """Return all errors in their order."""
    lines = CORPUS.read_text(encoding="utf-8").splitlines()
    return [_read(line) for line in lines if not line.startswith("#")]


def _read(line: str) -> LabelledError:
    label, machine, job, type_, message, causes, origin, exception = line.split("\t")
    names = tuple(filter(None, causes.split(";")))
    return LabelledError(label, machine, job, type_, _unescape(message), names, origin, exception)


def _unescape(text: str) -> str:
    parts = [part.replace("\\n", "\n").replace("\\t", "\t") for part in text.split("\\\\")]
    return "\\".join(parts)
