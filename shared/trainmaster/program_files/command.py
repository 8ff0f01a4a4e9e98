"""The command of a folder that `trainmaster submit --folder` packs: which of its files it starts,
and why it cannot start.

The command is started without a shell: see `trainmaster.packaging.folder_program`. A *wrapper* is a
program that starts another command, such as `env`, `nice` or `timeout`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from itertools import pairwise, takewhile
from pathlib import PurePosixPath
from typing import Final

from trainmaster.program_files.findings import ProgramFiles, ProgramFinding, may_fail, must_fail
from trainmaster.program_files.source_files import Entry
from trainmaster.program_files.wrappers import moves_command, unwrapped

_SIMILAR: Final = 0.5
"""Similarity, from 0 to 1, from which a misspelled path is taken for another one."""
_PYTHON: Final = re.compile(r"python(3(\.\d+)?)?")
_PYTHON_LONG_OPTION_WITH_VALUE: Final = "--check-hash-based-pycs"
SHELLS: Final = ("bash", "sh")
_SHELL_OPTIONS_WITH_VALUE: Final = ("-o", "+o", "-O", "+O", "--rcfile", "--init-file")
LAUNCHERS: Final = ("torchrun", "accelerate", "deepspeed")
"""Programs that start a script of the folder on every GPU."""
_COMMON_PROGRAMS: Final = frozenset(
    ["env", "ionice", "nice", "nohup", "perl", "setsid", "stdbuf", "taskset", "time", "timeout"]
) | {*LAUNCHERS, *SHELLS}
_RUN_IN_ENVIRONMENTS: Final = frozenset(
    ["conda", "hatch", "mamba", "micromamba", "pdm", "pipenv", "poetry", "rye", "uv"]
)
"""Programs whose subcommand `run` starts a command in an environment that they have installed."""
_RUN_ON_MACHINES: Final = ("mpiexec", "mpirun", "srun")
"""Programs that start a command on each machine of a cluster, which has them installed."""
_SHELL_OPERATORS: Final = ("&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1")
_PIPE_TO_TEE: Final = re.compile(r"^[^#\n]*\|&?[ \t]*(?:\\\n[ \t]*)?tee\b", re.MULTILINE)
_STARTS_PYTHON: Final = re.compile(r"\b(?:python[\d.]{0,5}|torchrun|accelerate|deepspeed)\s")
_ERRORS_TO_FILE: Final = re.compile(r"&>|(?<![\w.])2>(?!&)")
_OUTPUT_TO_FILE: Final = re.compile(r"(?<![2&])>(?!&)")
_ERRORS_TO_OUTPUT: Final = "2>&1"
_KEEPS_FAILURES: Final = re.compile(r"\bpipefail\b|\bPIPESTATUS\b")
_ASSIGNMENT: Final = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)


def entry_of(command: Sequence[str], files: ProgramFiles) -> Entry | None:
    """Return the Python file of the folder that the command runs, or None if it is not known."""
    if moves_command(command):  # a wrapper changes the folder, or where modules are found
        return None
    command = unwrapped(command)
    if not command:
        return None
    script = script_of(command)
    if script is None:
        module = _module_of(command)
        file = module_file(module, files.names) if module else None
        return Entry(file, root="") if file else None
    path = _normal_path(script)
    if path not in files.names or not path.endswith(".py"):
        return None
    folder = path.rpartition("/")[0]
    return Entry(path, f"{folder}/" if folder else "")


def check_command(
    command: Sequence[str], files: ProgramFiles, requirements: Sequence[str] = ()
) -> Iterator[ProgramFinding]:
    """Yield why the command cannot start, and parts of it that look like mistakes.

    `requirements`: lines of requirements.txt; their packages may have installed the program.
    """
    program = command[0]
    if program not in files.names and len(program.split()) > 1:
        words = shlex.join(program.split())
        yield must_fail(
            f"{program!r} is one word, and no program has this name",
            f"write the words without quotes around them, such as -- {words}",
        )
        return
    if _ASSIGNMENT.fullmatch(program):
        yield must_fail(
            f"{program!r} is no program: the command is started without a shell",
            "write env before it, or list the variable under trainmaster.env",
        )
        return
    yield from _check_program(command, files, requirements)
    inner = unwrapped(command)
    is_wrapped = bool(inner) and inner != list(command)
    if is_wrapped and _has_known_arguments(inner) and not moves_command(command):
        yield from _check_program(inner, files, requirements)
    operators = [word for word in command if word in _SHELL_OPERATORS]
    if operators:
        yield may_fail(
            f"the command is started without a shell, and {operators[0]!r} is an argument of it",
            "write the commands into a file such as run.sh, and give -- bash run.sh",
        )


def _check_program(
    command: Sequence[str], files: ProgramFiles, requirements: Sequence[str]
) -> Iterator[ProgramFinding]:
    """Yield why one program cannot start, without the command that it may start itself."""
    program = command[0]
    script = script_of(command)
    module = _module_of(command)
    if script is not None:
        yield from _check_script(script, files)
    elif module:
        yield from check_module(module, files.names)
        yield from _check_src(module, files.names)
    elif "/" in program:
        yield from _check_script(program, files)
    elif program in files.names:
        yield must_fail(
            f"{program} is a file of the folder, and programs without a path are looked up in PATH",
            f"write ./{program}",
        )
    elif not _PYTHON.fullmatch(program) and not _is_known(program, requirements):
        yield _no_program(command)
    if is_shell(command):
        yield from _check_pipes(command, script, files)
        yield from _check_line_ends(script, files)


def _has_known_arguments(command: Sequence[str]) -> bool:
    """Return whether the arguments of the program can be read. Behind an unknown option of another
    program, the first word may be the option's value.
    """
    program = program_name(command[0])
    return bool(_PYTHON.fullmatch(program)) or program in (*SHELLS, *LAUNCHERS)


def check_module(module: str, names: frozenset[str]) -> Iterator[ProgramFinding]:
    """Yield why `python -m MODULE` does not find its module in these files.

    A module whose first package is in none of the files may be a dependency's, and is not judged.
    """
    parts = module.split(".")
    if parts[-1] == "py" and module_file(".".join(parts[:-1]), names):
        name = ".".join(parts[:-1])
        yield must_fail(f"{module} is the name of a file, and no module", f"write {name}")
        return
    if len(parts) == 1 or module_file(module, names):
        return
    folder = "/".join(parts[:-1])
    # Without __init__.py, other packages may add modules to the folder.
    is_whole_package = f"{folder}/__init__.py" in names
    if is_whole_package and not _has_compiled_sources(folder, names):
        inside = [PurePosixPath(name) for name in names if PurePosixPath(name).parent.match(folder)]
        modules = [path.stem for path in inside if path.suffix == ".py"]
        nearest = get_close_matches(parts[-1], sorted(set(modules) - {"__init__"}), n=1, cutoff=0)
        remedy = f"write for example {'.'.join([*parts[:-1], *nearest])}" if nearest else "add it"
        yield must_fail(f"{folder}/ has no module {parts[-1]}, which {module} names", remedy)


def module_file(module: str, names: frozenset[str]) -> str | None:
    """Return the file that `python -m MODULE` runs, or None if it is not among the files."""
    path = module.replace(".", "/")
    for candidate in (f"{path}/__main__.py", f"{path}.py"):
        if candidate in names:
            return candidate
    return None


def _check_script(script: str, files: ProgramFiles) -> Iterator[ProgramFinding]:
    path = _normal_path(script)
    if path is None or path in files.names:
        return
    is_folder = any(name.startswith(f"{path}/") for name in files.names)
    if is_folder or path == ".":
        if f"{path}/__main__.py".removeprefix("./") not in files.names:
            yield must_fail(f"{script} is a folder without __main__.py", "name the file to run")
        return
    suffix = PurePosixPath(path).suffix
    alike = [name for name in sorted(files.names) if PurePosixPath(name).suffix == suffix]
    same_name = [name for name in alike if PurePosixPath(name).name == PurePosixPath(path).name]
    nearest = same_name or get_close_matches(path, alike, n=1, cutoff=_SIMILAR)
    remedy = f"did you mean {nearest[0]}?" if nearest else "the command may name the folder's files"
    yield must_fail(f"{script} is not among the files that the job gets", remedy)


def _is_known(program: str, requirements: Sequence[str]) -> bool:
    """Return whether the program is on each VM, or a package of its name is installed there."""
    names = (re.match(r"[\w.-]+", line) for line in requirements)
    packages = {name[0].lower().replace("_", "-") for name in names if name}
    return program in _COMMON_PROGRAMS or program.lower().replace("_", "-") in packages


def _no_program(command: Sequence[str]) -> ProgramFinding:
    problem = f"no file of the folder is the program {command[0]}"
    if command[0] in _RUN_IN_ENVIRONMENTS and "run" in command[1:2]:
        return may_fail(
            problem,
            "give only the command that it runs, and name its packages in requirements.txt, which"
            " the VM's Python has",
        )
    if command[0] in _RUN_ON_MACHINES:
        return may_fail(
            problem,
            "give only the command that it runs: each machine of the job runs it, with RANK and"
            " WORLD_SIZE in its environment",
        )
    return may_fail(problem, "the runtime or a package in requirements.txt must bring it")


def _check_src(module: str, names: frozenset[str]) -> Iterator[ProgramFinding]:
    """Yield that Python does not search the folder src, which an installation would."""
    top = module.partition(".")[0]
    at_top = [name for name in names if name == f"{top}.py" or name.startswith(f"{top}/")]
    if not at_top and module_file(f"src.{module}", names):
        yield may_fail(
            f"{module} is below src/, where Python looks for no modules",
            f"give -- env PYTHONPATH=src python -m {module}",
        )


def _check_line_ends(script: str | None, files: ProgramFiles) -> Iterator[ProgramFinding]:
    """Yield that the lines of a shell script end as on Windows."""
    path = _normal_path(script) if script else None
    if path in files.names and b"\r\n" in files.read(path):
        yield may_fail(
            f"the lines of {script} end with CR LF, and a shell takes the CR for a part of the word"
            " before it",
            "write it with the line ends of Unix, LF",
        )


def _check_pipes(
    command: Sequence[str], script: str | None, files: ProgramFiles
) -> Iterator[ProgramFinding]:
    """Yield that a shell hides the exit status of what is piped to `tee`."""
    path = _normal_path(script) if script else None
    text = files.read(path).decode(errors="replace") if path in files.names else ""
    words = "\n".join([*command, text])
    if _PIPE_TO_TEE.search(words) and not _KEEPS_FAILURES.search(words):
        yield may_fail(
            "a pipe to tee exits 0 although the program before it fails",
            "let bash run it, and begin with set -eo pipefail",
        )
    if any(map(_hides_errors, words.splitlines())):
        yield may_fail(
            "the errors of the program go to a file on the VM, and trainmaster why sees none",
            "leave the redirection out: the log of the job has all output",
        )


def _hides_errors(line: str) -> bool:
    """Return whether a line of a shell writes the standard error of a program to a file."""
    command = line.partition("#")[0]
    if not _STARTS_PYTHON.search(command):
        return False
    is_with_output = _ERRORS_TO_OUTPUT in command and _OUTPUT_TO_FILE.search(command) is not None
    return is_with_output or _ERRORS_TO_FILE.search(command) is not None


def script_of(command: Sequence[str]) -> str | None:
    """Return the path of the script that the command names, or None if it names none."""
    program, arguments = program_name(command[0]), command[1:]
    if program.endswith((".py", ".sh")):
        return program
    if _PYTHON.fullmatch(program):
        kind, value = _python_target(arguments)
        return value if kind == "script" else None
    if program in SHELLS:
        return _shell_script(arguments)
    if program in LAUNCHERS and not _launched_module(arguments):
        # Their options have values, but none of them is a Python file.
        return next((word for word in arguments if _is_python_file(word)), None)
    return None


def _module_of(command: Sequence[str]) -> str:
    """Return the module that `python -m` or `torchrun -m` runs; empty: another command."""
    program = program_name(command[0])
    if program in LAUNCHERS:
        return _launched_module(command[1:])
    if not _PYTHON.fullmatch(program):
        return ""
    kind, value = _python_target(command[1:])
    return value if kind == "module" else ""


def _launched_module(arguments: Sequence[str]) -> str:
    """Return the module behind a launcher's option `-m`; empty: it runs a file."""
    own_words = list(takewhile(lambda word: not _is_python_file(word), arguments))
    for option, following in pairwise(own_words):
        if option in ("-m", "--module"):
            return "" if following.startswith("-") else following
    return ""


def program_name(word: str) -> str:
    """Return `python3` for `/usr/bin/python3`, and so for shells and launchers; else the word."""
    name = PurePosixPath(word).name
    is_known = bool(_PYTHON.fullmatch(name)) or name in (*SHELLS, *LAUNCHERS)
    return name if word.startswith("/") and is_known else word


def is_shell(command: Sequence[str]) -> bool:
    """Return whether the program is a shell."""
    return program_name(command[0]) in SHELLS


def _python_target(arguments: Sequence[str]) -> tuple[str, str]:
    """Return what Python runs, as its command line says: `script`, `module` or `other`, and its
    name.

    Source: "Command line and environment", Python documentation.
    """
    words = iter(arguments)
    for word in words:
        if word == _PYTHON_LONG_OPTION_WITH_VALUE:
            next(words, None)
        elif word in ("-", "--") or word.startswith("--"):
            return "other", ""
        elif not word.startswith("-"):
            return "script", word
        else:
            letter, value = _option_with_value(word)
            if letter == "c":
                return "other", ""
            if letter:
                value = value or next(words, "")
            if letter == "m":
                return "module", value
    return "other", ""


def _option_with_value(word: str) -> tuple[str, str]:
    """Return the option that takes a value, and the value: `-um trainer` has m, `-Wignore` has W.

    Both are empty if no letter of the word takes a value; the value alone is the next word.
    """
    for position, letter in enumerate(word[1:], start=1):
        if letter in "cmWX":
            return letter, word[position + 1 :]
    return "", ""


def inline_script(arguments: Sequence[str]) -> str | None:
    """Return the text behind a shell's `-c`; None: the shell runs a file or its input."""
    words = iter(arguments)
    for word in words:
        is_inline = word.startswith("-") and not word.startswith("--") and "c" in word
        if is_inline:
            return next(words, "")
        if not word.startswith(("-", "+")):
            return None
        if word in _SHELL_OPTIONS_WITH_VALUE or word.endswith("o"):
            next(words, None)
    return None


def _shell_script(arguments: Sequence[str]) -> str | None:
    words = iter(arguments)
    for word in words:
        if word in _SHELL_OPTIONS_WITH_VALUE:
            next(words, None)
        elif word.startswith(("-", "+")):
            is_inline = not word.startswith("--") and bool({"c", "s"} & set(word))
            if is_inline:
                return None
            if word.endswith("o"):  # as in `bash -euo pipefail`
                next(words, None)
        else:
            return word
    return None


def _is_python_file(word: str) -> bool:
    return word.endswith(".py") and not word.startswith("-")


def _normal_path(script: str) -> str | None:
    """Return the path below the folder; None: it is outside, where other files may be."""
    path = PurePosixPath(script)
    if path.is_absolute() or ".." in path.parts:
        return None
    return path.as_posix()


def _has_compiled_sources(folder: str, names: frozenset[str]) -> bool:
    """Return whether a build may add modules to the package."""
    sources = (".so", ".pyx", ".c", ".cc", ".cpp", ".cu", ".rs")
    return any(name.startswith(f"{folder}/") and name.endswith(sources) for name in names)
