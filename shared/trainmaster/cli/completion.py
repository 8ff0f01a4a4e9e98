"""`--show-completion` and `--install-completion` for the shell that is named after them.

Without a name, it is the shell that runs the command. That is another one than the user's in a
script, and none in a container.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import shellingham
import typer

# typer has no public name for these; `make check` and the tests of completion see a change.
from typer._completion_shared import Shells, get_completion_script, install

from trainmaster.cli.output import say

SHOW: Final = "--show-completion"
INSTALL: Final = "--install-completion"
HELP: Final = {
    "show_completion": f"Print the completion of this shell, or of the one that is named: {SHOW}"
    " zsh.",
    "install_completion": f"Install the completion of this shell, or of the one that is named:"
    f" {INSTALL} zsh.",
}
"""Parameter of the program → its help."""
PROGRAM: Final = "trainmaster"
"""Name of the installed command, which shells complete."""
_VARIABLE: Final = "_TRAINMASTER_COMPLETE"
"""The environment variable by which a shell asks the command for completions."""
_ZSH_FIRST_USE: Final = f"""
if [[ $funcstack[1] == _{PROGRAM} ]]; then _{PROGRAM}_completion "$@"; fi
"""
"""zsh reads an installed script at the first use of the Tab key, by calling it. The script of typer
only defines the completion then, so that nothing is completed before the second use.
"""
_NAMES: Final = ", ".join(Shells)


def show_or_install(arguments: Sequence[str]) -> bool:
    """Do what `--show-completion` or `--install-completion` asks for, with a shell or without.

    Returns False for other arguments. Raises typer.BadParameter for a shell that has no completion.
    """
    option, *rest = arguments or ("",)
    option, equals, name = option.partition("=")
    words = [name, *rest] if equals else rest
    if option not in (SHOW, INSTALL):
        return False
    if not words:
        words = [_running_shell(option)]
    shell = words[0].rpartition("/")[2].lower()  # $SHELL is a path
    if shell not in list(Shells) or len(words) > 1:
        raise typer.BadParameter(
            f"{' '.join(words)!r} is not a shell that has completion: {_NAMES}", param_hint=option
        )
    if option == INSTALL:
        _, path = install(shell=shell, prog_name=PROGRAM, complete_var=_VARIABLE)
        if shell == Shells.zsh:
            with path.open("a", encoding="utf-8") as script:
                script.write(_ZSH_FIRST_USE)
        say(f"completion of {shell} is installed in {path}; it takes effect in a new terminal")
        return True
    say(get_completion_script(prog_name=PROGRAM, complete_var=_VARIABLE, shell=shell))
    return True


def _running_shell(option: str) -> str:
    """Return the shell that runs the command. Raises typer.BadParameter if there is none."""
    try:
        name, _ = shellingham.detect_shell()
    except (shellingham.ShellDetectionFailure, NotImplementedError):
        problem = f"no shell runs this command: name yours, one of {_NAMES}"
        raise typer.BadParameter(problem, param_hint=option) from None
    return str(name)
