"""Options that users know from other tools, and the options of Trainmaster in their place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final

from typer.core import TyperArgument, TyperCommand

from trainmaster.cli.usage_errors import clarify, unexpected_words

_MACHINE: Final = (
    "--scale-tier custom --master-machine-type a2-highgpu-1g; `trainmaster machines` lists machine"
    " types with their GPUs"
)
_NODES: Final = "--worker-count 1 --worker-machine-type TYPE, for the machines besides the master"
_SPOT: Final = "`trainmaster: {spot: all}` in a job file"
_DETACHED: Final = "leave it out; `submit` returns at once, and asks nothing"

_OF_ALL: Final = {
    ("--json", "--output", "-o"): "--format json",
    ("--tail", "-t", "--lines"): "`| tail -n NUMBER` after the command",
    ("-n", "--num", "--max"): "--limit",
    ("-a",): "--all",
    ("-y", "--yes", "--force"): "leave it out; no question is asked",
    ("-s", "--status"): "--state",
    ("--filter", "--selector"): "--state, --label or --user",
    ("--since", "--until", "--days", "--last"): "--limit, which counts the newest jobs",
    ("--timeout",): "`timeout 10m` before the command, which then ends with status 124",
    ("--interval", "--refresh", "--watch", "-w"): (
        "`watch` before the command; `top` and `wait` update themselves"
    ),
    ("--replica", "--worker", "--rank", "--task"): "--task-name worker-0",
}
"""Options of watching commands."""
_OF_SUBMIT: Final = {
    (
        "--accelerator",
        "--accelerators",
        "--gpu",
        "--gpus",
        "--instance-type",
        "--machine-type",
        "--num-gpus",
    ): _MACHINE,
    ("--nnodes", "--nodes", "--num-nodes", "-N"): _NODES,
    ("--preemptible", "--spot", "--use-spot"): _SPOT,
    ("-d", "--detach", "--detach-run", "-y", "--yes"): _DETACHED,
    ("--dir", "--source", "--workdir"): "--folder",
    ("--container-image", "--docker-image", "--image"): "--master-image-uri",
    ("--timeout", "--time", "--max-run-duration"): "--max-running-time",
    ("--budget", "--max-cost", "--cost-limit"): "`trainmaster: {maxCost: 25 USD}` in a job file",
    ("--zone", "--zones"): "`trainmaster: {zones: [us-central1-a]}` in a job file",
    ("--disk-size",): "masterConfig: {diskConfig: {bootDiskSizeGb: 200}} in a job file",
    ("-e", "--env", "--env-file", "--envs"): "`trainmaster: {env: {NAME: value}}` in a job file",
    ("--secret", "--secrets"): "`trainmaster: {secrets: {NAME: secret}}` in a job file",
    ("-c", "--cluster", "--job-id", "-n", "--name"): "the job's id as the first argument",
    ("--dry-run", "--dryrun", "--validate-only"): "--check",
    ("--follow", "--stream"): "--stream-logs",
    ("-f", "--file", "--filename"): "the job file as the first argument; --stream-logs follows",
    ("--requirements",): "a requirements.txt in the folder that --folder names",
}


def _shown_name(argument: Any) -> str:
    """Return the name of an argument in help texts, such as JOB."""
    return (argument.metavar or "").strip("[].")


class HintingCommand(TyperCommand):
    """A command that answers an option of another tool with its own option in place of it."""

    meanings: ClassVar[Mapping[tuple[str, ...], str]] = _OF_ALL

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        takes_more = ctx.allow_extra_args
        ctx.allow_extra_args = True
        try:
            super().parse_args(ctx, args)
        except Exception as error:
            self._answer(ctx, getattr(error, "option_name", None))
            clarify(error)
            raise
        ctx.allow_extra_args = takes_more
        extra: list[str] = ctx.args
        if extra and not takes_more and not ctx.resilient_parsing:
            ctx.fail(self._unexpected(ctx.command_path, extra[0]))
        return extra

    def _unexpected(self, command: str, extra: str) -> str:
        """Return a sentence about an argument that the command does not take."""
        takes = [
            _shown_name(parameter)
            for parameter in self.params
            if isinstance(parameter, TyperArgument)
        ]
        options = {name for parameter in self.params for name in parameter.opts}
        return unexpected_words(command, takes, extra, has_task_name="--task-name" in options)

    def _answer(self, ctx: Any, option: str | None) -> None:
        """End with an error that names the option of this command in place of an unknown one.

        `option`: None for another error. The class of the error is in the copy of click that typer
        contains, which does not export it.
        """
        known = {name for parameter in self.params for name in parameter.opts}
        if option is None or option in known:
            return
        argument = self._argument_named(option)
        if argument:
            ctx.fail(f"No such option: {option}. Here: an argument without a name, {argument}")
        meant = meaning_of_option(option, self.meanings)
        is_own_option = meant.partition(" ")[0].rstrip(",;") in known
        if meant and (is_own_option or not meant.startswith("-")):
            ctx.fail(f"No such option: {option}. Here: {meant}")

    def _argument_named(self, option: str) -> str:
        """Return the argument that the option names, as `--job-id` does; empty: there is none."""
        name = option.lstrip("-").replace("-", "_").lower()
        for parameter in self.params:
            shown = _shown_name(parameter)
            own_names = ((parameter.name or "").rstrip("s"), shown.lower(), f"{shown.lower()}_id")
            if isinstance(parameter, TyperArgument) and name in own_names:
                return shown
        return ""


class HintingSubmit(HintingCommand):
    """A `HintingCommand` that submits a job."""

    meanings = _OF_SUBMIT


def meaning_of_option(option: str, meanings: Mapping[tuple[str, ...], str]) -> str:
    """Return what says the same as the option of another tool; empty: it is not known."""
    return next((meaning for names, meaning in meanings.items() if option in names), "")
