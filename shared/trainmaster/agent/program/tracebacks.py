"""Finding the Python error that a program's output ends with.

`program.py` calls `parse_traceback` with the end of stdout and of stderr when a program has failed;
the result says in the exit report, and so to users, why it failed. Several processes may print to
one output: a launcher, such as torchrun, and its workers, one for each rank. So all errors are read
first, and then one is chosen:

    output ── printed_shapes ──► lines in the form of Python
           ── traceback_reader ──► tracebacks, the latest first
           ── launcher_reports ──► those of launchers, and before them those of workers
           ── this module ──► the error that ended the program

`bare_errors` finds errors without a traceback. All of it takes linear time, because a program may
print anything.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from trainmaster.agent.program.bare_errors import find_bare_error
from trainmaster.agent.program.launcher_reports import (
    LauncherReport,
    describe_death,
    only_reports_worker,
    read_report,
)
from trainmaster.agent.program.printed_shapes import plain_lines, starts_note
from trainmaster.agent.program.traceback_reader import (
    RANK,
    TRAILING_LINES_MAX,
    Traceback,
    TracebackReader,
)
from trainmaster.program_errors.meaning import is_peer_loss, meaning_of

LAUNCHED = "ChildFailedError"
"""Type of the error that stands for a worker's death, as torchrun calls it."""

_STACKS = re.compile(
    r"(?:\[[^\]]*\]:?\s*)?"
    r"(?:Fatal Python error: |(?:Current thread|Thread) 0x"
    r'|  File ".*", line \d+ in |Extension modules: )'
)
"""Stacks of Python's faulthandler follow the error of a program that aborts itself."""
_LOADER_EXITED = re.compile(r"DataLoader worker \(pid\(s\) [\d, ]+\) exited unexpectedly")
_LOADER_KILLED = re.compile(r"DataLoader worker \(pid \d+\) is killed by signal: .*")
"""Source: torch/utils/data/dataloader.py, and torch/csrc/DataLoader.cpp for the cause."""


def parse_traceback(output: str, package: str = "") -> dict[str, Any] | None:
    """Return the error that the output ends with: the fields of ``error`` in docs/interfaces.md
    section 2.

    None if the output does not end with a Python error. The frame is empty if Python printed none,
    as for a module that does not exist. `package` is the top-level package of the program: it is
    installed like a library, but its frames are the program's own.

    The first of these counts that there is:

    1. A line of a launcher about the death of a worker.
    2. The error of a launcher that says that a signal ended a worker.
    3. The error that a worker printed before its launcher's: see `_choose_error`. A program without
       a launcher is its only worker.
    4. The error of a worker that the report of torchrun repeats.
    5. An error of a worker without a traceback.
    6. The error about a command that the program's own code has run.
    """
    lines = [line for line in plain_lines(output) if not _STACKS.match(line)]
    for line in lines[-TRAILING_LINES_MAX:]:
        death = describe_death(line)
        if death is not None:
            return {"type": LAUNCHED, "message": death, "frame": ""}
    reader = TracebackReader(lines, package)
    of_launchers, of_workers = _read_latest(reader, len(lines))
    reports = [read_report(traceback, lines, package) for traceback in of_launchers]
    for report in reports:
        if report.signal:
            return _error_of_signal(report, lines)
    # Launchers may start launchers. The last report here, the earliest in the output, is that of
    # the one that started the workers.
    root_prefix, launchers_start = "", len(lines)
    if reports:
        root_prefix, launchers_start = reports[-1].root_prefix, reports[-1].start
    repeated = (report.repeated_error for report in reports if report.repeated_error)
    of_commands = (report.error for report in reports if report.is_of_own_command)
    return (
        _choose_error(_find_candidates(of_workers, reader), root_prefix)
        or next(repeated, None)
        or find_bare_error(lines[:launchers_start])
        or next(of_commands, None)
    )


def find_unreported_error(output: str, package: str = "") -> dict[str, Any] | None:
    """Return the error with which the output of a program ends that exited 0, as `parse_traceback`
    does; None if there is none.

    An exception is lost like this in a thread, a child process, a task of asyncio or an exit
    handler, and in a shell before `|` or `;`. A program may print errors that it survives: so it
    must be raised in the program's own code, and nothing but notes of other programs may follow.
    """
    lines = plain_lines(output)
    while lines and (not lines[-1].strip() or starts_note(lines[-1], "")):
        lines.pop()
    reader = TracebackReader(lines, package, takes_exit_handlers=True)
    for start in reader.latest_starts[:1]:
        traceback = reader.read(start, len(lines))
        if traceback and traceback.error["own_frame"] and _is_at_end(traceback.error, lines):
            return traceback.error
    return None


def _is_at_end(error: dict[str, Any], lines: list[str]) -> bool:
    """Return whether the last line is the last one of the error.

    Lines behind the first one of a message may also be what the program printed when it went on,
    unless they are indented.
    """
    printed = f"{error['type']}: {error['message']}" if error["message"] else str(error["type"])
    _, *further = printed.splitlines()
    is_one_message = all(line.startswith((" ", "\t")) or not line.strip() for line in further)
    return is_one_message and lines[-1].rstrip().endswith(printed.splitlines()[-1].rstrip())


def _read_latest(reader: TracebackReader, end: int) -> tuple[list[Traceback], list[Traceback]]:
    """Return the tracebacks of launchers and those of workers before line `end`, the latest first.

    A launcher fails after its workers. So what comes before the first error of a launcher ends
    where that begins, and behind an error of a worker there is none of a launcher that counts.
    """
    of_launchers: list[Traceback] = []
    of_workers: list[Traceback] = []
    for start in reader.latest_starts:
        traceback = reader.read(start, end)
        if traceback is None:
            continue
        if only_reports_worker(traceback.error) and not of_workers:
            of_launchers.append(traceback)
            end = start
        else:
            of_workers.append(traceback)
    return of_launchers, of_workers


def _error_of_signal(report: LauncherReport, lines: list[str]) -> dict[str, Any]:
    """Return the error of a worker that a signal ended.

    A worker that aborted itself has printed why, before its launcher's error.
    """
    aborted = find_bare_error(lines[: report.start]) if "SIGABRT" in report.signal else None
    return aborted or {**report.error, "message": report.signal}


class _Candidate(NamedTuple):
    """An error that may be why the program ended."""

    prefix: str
    """The prefix of the lines of the process that printed it; empty: they have none."""
    error: dict[str, Any]


def _find_candidates(tracebacks: list[Traceback], reader: TracebackReader) -> list[_Candidate]:
    """Return the error of each chain of exceptions, the latest first.

    It is that of the last exception, since it ended the program; the types of the others are its
    causes.
    """
    return [
        _Candidate(chain[0].prefix, _error_of_chain(chain, reader))
        for chain in _split_into_chains(tracebacks, reader)
    ]


def _split_into_chains(
    tracebacks: list[Traceback], reader: TracebackReader
) -> list[list[Traceback]]:
    """Return the chains of these tracebacks, all in the order given: the latest first.

    A chain is an exception, its cause, the cause of that, and so on. All have one prefix, while
    tracebacks of other processes may stand between them.
    """
    chains: list[list[Traceback]] = []
    chain_of: dict[str, list[Traceback]] = {}  # prefix → its earliest chain so far
    for traceback in tracebacks:
        chain = chain_of.get(traceback.prefix)
        if chain and reader.has_cause(chain[-1].start):
            chain.append(traceback)
        else:
            chain_of[traceback.prefix] = [traceback]
            chains.append(chain_of[traceback.prefix])
    return chains


def _error_of_chain(chain: list[Traceback], reader: TracebackReader) -> dict[str, Any]:
    """Return the error of a chain's last exception, which is the first item, with its causes.

    Python raises the error of a process of a pool again in the process that waits for it. The
    frames there do not show where it happened, so the frames in the pool replace them. PyTorch
    names the signal that ended a worker of a data loader only in the cause.
    """
    error = dict(chain[0].error)
    for cause in chain[1:]:
        signal = _LOADER_KILLED.match(cause.error["message"])
        if signal and _LOADER_EXITED.match(error["message"]):
            error["message"] = signal[0]
        if cause.error["type"] == error["type"] and reader.is_of_pool(cause.start):
            error.update(frame=cause.error["frame"], own_frame=cause.error["own_frame"])
    causes = reader.read_causes(chain[0].start)
    if causes:
        error["causes"] = causes
    return error


def _choose_error(candidates: list[_Candidate], root_prefix: str) -> dict[str, Any] | None:
    """Return the error that ended the program; None if there is no candidate.

    It is that of the worker that a launcher names (`root_prefix`), or else the latest, which is the
    first candidate. If it only reports a lost peer, and another rank of this machine ended with an
    error of its own, that is the cause. Other prefixes than PyTorch's may also belong to an error
    that the program logged and survived.
    """
    if not candidates:
        return None
    of_root_cause = [entry for entry in candidates if entry.prefix.startswith(root_prefix)]
    chosen = (of_root_cause or candidates)[0]
    if not _reports_lost_peer(chosen.error) or not RANK.match(chosen.prefix):
        return chosen.error
    latest: dict[str, dict[str, Any]] = {}
    for candidate in candidates:
        if RANK.match(candidate.prefix):
            latest.setdefault(candidate.prefix, candidate.error)
    own_errors = (error for error in latest.values() if not _reports_lost_peer(error))
    return next(own_errors, chosen.error)


def _reports_lost_peer(error: dict[str, Any]) -> bool:
    return is_peer_loss(meaning_of(error["type"], error["message"], error.get("causes", ())))
