"""Programs that start the command behind their own words: `timeout -s KILL 2h python train.py`.

A guess for what reads programs before they run: an option that the table does not have is taken for
one without a value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A program, and what its own words may be."""

    subcommands: tuple[str, ...] = ()
    """Words of which one must be among its own, such as `run`; empty: it needs none."""
    with_value: frozenset[str] = frozenset()
    """Options whose value is the next word."""
    with_two_values: frozenset[str] = frozenset()
    """Options whose values are the next two words."""
    runs_python: bool = False
    """Whether it runs a Python file, or with the option `-m` a module, in place of a command."""


def _wrapper(
    with_value: str = "", *subcommands: str, two: str = "", python: bool = False
) -> Wrapper:
    return Wrapper(subcommands, frozenset(with_value.split()), frozenset(two.split()), python)


_CONDA: Final = _wrapper("-n --name -p --prefix --cwd", "run")
_MPI: Final = _wrapper(
    "-n -np --np -N -c -H -host --host -f -hostfile --hostfile -machinefile --machinefile -x"
    " -bind-to --bind-to -map-by --map-by -ppn --prefix -wdir --wdir -output-filename"
    " --output-filename",
    two="-mca --mca -genv",
)
_WRAPPERS: Final = {
    "env": _wrapper("-u --unset -C --chdir -a --argv0"),
    "exec": _wrapper("-a"),
    "command": _wrapper(),
    "nice": _wrapper("-n --adjustment"),
    "nohup": _wrapper(),
    "setsid": _wrapper(),
    "time": _wrapper("-f --format -o --output"),
    "timeout": _wrapper("-s --signal -k --kill-after"),
    "stdbuf": _wrapper("-i --input -o --output -e --error"),
    "unbuffer": _wrapper(),
    "sudo": _wrapper(
        "-u --user -g --group -h --host -p --prompt -C --close-from -D --chdir -R --chroot -T"
        " --command-timeout -r --role -t --type -U --other-user"
    ),
    "ionice": _wrapper("-c --class -n --classdata"),
    "taskset": _wrapper(),
    "chrt": _wrapper("-T --sched-runtime -P --sched-period -D --sched-deadline"),
    "numactl": _wrapper(
        "-i --interleave -w --weighted-interleave -N --cpunodebind -C --physcpubind -m --membind"
        " -p --preferred -P --preferred-many"
    ),
    "xvfb-run": _wrapper(
        "-e --error-file -f --auth-file -n --server-num -p --xauth-protocol -s --server-args"
        " -w --wait"
    ),
    "tini": _wrapper("-p -e"),
    "dumb-init": _wrapper("-r --rewrite"),
    "strace": _wrapper("-o --output -e --trace -p -s -E --env -u -b -a -O -P -S -X -I"),
    "nsys": _wrapper(
        "-o --output -t --trace -s --sample -c --capture-range -b --backtrace -y --delay"
        " -d --duration -f --force-overwrite -w --show-output -x --stop-on-exit",
        "profile",
        "launch",
    ),
    "py-spy": _wrapper("-o --output -r --rate -f --format -d --duration", "record", "top"),
    "srun": _wrapper(
        "-A --account -c --cpus-per-task -C --constraint -D --chdir -d --dependency -e --error"
        " -G --gpus -i --input -J --job-name -m --distribution -n --ntasks -N --nodes -o --output"
        " -p --partition -q --qos -r --relative -t --time -w --nodelist -x --exclude --gres --mem"
        " --mpi --export --ntasks-per-node --gpus-per-node --gpus-per-task --container-image"
        " --container-mounts --container-workdir --cpu-bind --gpu-bind"
    ),
    "mpirun": _MPI,
    "mpiexec": _MPI,
    "horovodrun": _wrapper("-np --num-proc -p --ssh-port -H --hosts -hostfile --hostfile"),
    "conda": _CONDA,
    "mamba": _CONDA,
    "micromamba": _CONDA,
    "hatch": _wrapper("-e --env -p --project", "run"),
    "pdm": _wrapper("-p --project -s --site-packages", "run"),
    "pipenv": _wrapper("--python --pypi-mirror", "run"),
    "poetry": _wrapper("-C --directory -P --project", "run"),
    "rye": _wrapper("--pyproject", "run"),
    "uv": _wrapper(
        "--with --with-editable --with-requirements -w -p --python --extra --group --only-group"
        " --no-group --package --project --directory --env-file --index --default-index -i"
        " --index-url --extra-index-url -f --find-links",
        "run",
        python=True,
    ),
    "cProfile": _wrapper("-o -s", python=True),
    "pdb": _wrapper("-c --command", python=True),
    "debugpy": _wrapper("--listen --connect --log-to", python=True),
    "trace": _wrapper("-f --file -C --coverdir -s --summary --ignore-module", python=True),
    "coverage": _wrapper("--rcfile --source --omit --include --data-file", "run", python=True),
    "memray": _wrapper("-o --output", "run", python=True),
    "kernprof": _wrapper("-o --outfile -s --setup -p --prof-mod", python=True),
    "scalene": _wrapper("--outfile --profile-interval", python=True),
    "viztracer": _wrapper("-o --output_file --tracer_entries --max_stack_depth", python=True),
}
"""Name → program. Some are modules, which `python -m` runs.

Source: the manual of each of them.
"""
_NO_OPTION: Final = re.compile(r"[A-Za-z_]\w*=.*|[0-9][0-9a-fx.,-]*[smhd]?", re.DOTALL)
"""A variable, or a number such as a duration or a list of processors, before the command."""

_MOVES: Final = (
    "-C",
    "-D",
    "--chdir",
    "--cwd",
    "--directory",
    "-wdir",
    "--wdir",
    "-R",
    "--chroot",
    "PYTHONPATH=",
)
"""How options and variables begin with which a command finds files or modules elsewhere."""


def unwrapped(words: Sequence[str]) -> list[str]:
    """Return the command that these programs start, which may start each other.

    A command that is none of them is returned as it is. Empty: none is behind their own words.
    """
    command = list(words)
    while command:
        begin = _place_of_own_words(command)
        if begin is None:
            break
        command = _behind_own_words(_WRAPPERS[_name_of(command)], command[begin:])
    return command


def moves_command(words: Sequence[str]) -> bool:
    """Return whether these programs start their command in another folder, or let it find other
    modules.
    """
    own_words = words[: len(words) - len(unwrapped(words))]
    return any(word.startswith(_MOVES) for word in own_words)


def _place_of_own_words(words: Sequence[str]) -> int | None:
    """Return the index of the first word behind the program's name, or behind its module's; None:
    it is no wrapper.
    """
    begin = 3 if _runs_module(words) else 1
    wrapper = _WRAPPERS.get(_name_of(words))
    if wrapper is None:
        return None
    if not wrapper.subcommands or not set(wrapper.subcommands).isdisjoint(words[begin:]):
        return begin
    return None


def _name_of(words: Sequence[str]) -> str:
    """Return the name of a program, without its folder, or of the module that Python runs."""
    return words[2] if _runs_module(words) else PurePosixPath(words[0]).name


def _runs_module(words: Sequence[str]) -> bool:
    """Whether the command is `python -m MODULE`."""
    interpreter, *rest = words
    return interpreter.startswith("python") and rest[:1] == ["-m"] and len(rest) > 1


def _behind_own_words(wrapper: Wrapper, words: Sequence[str]) -> list[str]:
    """Return the command behind the words of one wrapper."""
    before_subcommand = bool(wrapper.subcommands)
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word == "--":
            return rest
        if wrapper.runs_python and word in ("-m", "--module"):
            return ["python", "-m", *rest]
        if word in wrapper.with_two_values:
            del rest[:2]
        elif word.startswith("-"):
            if _has_its_value_next(word, wrapper.with_value):
                del rest[:1]
        elif before_subcommand:
            before_subcommand = word not in wrapper.subcommands
        elif not _NO_OPTION.fullmatch(word):
            return [word, *rest]
    return []


def _has_its_value_next(word: str, with_value: frozenset[str]) -> bool:
    """Return whether the value of an option, or of the last of several letters, is the next word.

    `-Eu` is the option E and then u, and the word behind it the value of u; `-n5` has its own one.
    """
    if word in with_value or word.startswith("--"):
        return word in with_value
    letters = [f"-{letter}" for letter in word[1:]]
    first = next((place for place, letter in enumerate(letters) if letter in with_value), None)
    return first == len(letters) - 1
