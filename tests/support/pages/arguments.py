"""The tables of arguments in docs/algorithms.md, from the arguments of the algorithms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trainmaster.algorithms.arguments.argument import Argument, Source
from trainmaster.algorithms.arguments.common import TABULAR
from trainmaster.algorithms.arguments.keras import TRAINING
from trainmaster.algorithms.arguments.tables import TABLES

HEAD: Final = (
    "\n| argument | values | default | default of | meaning |\n| --- | --- | --- | --- | --- |\n"
)
SOURCES: Final = {
    Source.SERVICE: "the service",
    Source.VERTEX: "its successor",
    Source.OURS: "Trainmaster; unknown",
}


def sections() -> str:
    """Return one table for what algorithms share, and one for each algorithm."""
    of_keras = (*TABULAR, *TRAINING)
    of_trees = TABLES["boosted_trees"].arguments
    parts = (
        ("All but `xgboost_dist`, which has the paths only", list(TABULAR)),
        ("`boosted_trees`, `xgboost_dist`", _others("boosted_trees", TABULAR)),
        ("Only `xgboost_dist`", _others("xgboost_dist", of_trees)),
        ("`linear_learner`, `wide_deep_learner`, `tab_net`", list(TRAINING)),
        ("`linear_learner`", _others("linear_learner", of_keras)),
        ("`wide_deep_learner`", _others("wide_deep_learner", of_keras)),
        ("`tab_net`", _others("tab_net", of_keras)),
    )
    tables = [f"\n### {title}\n{HEAD}{''.join(map(_row, arguments))}" for title, arguments in parts]
    return "".join(tables) + "\n"


def _others(algorithm: str, shared: Sequence[Argument]) -> list[Argument]:
    """Return the arguments of the algorithm that another table does not show already."""
    return [item for item in TABLES[algorithm].arguments if item not in shared]


def _row(argument: Argument) -> str:
    values = argument.allowed
    if argument.choices:
        values = ", ".join(f"`{choice}`" for choice in argument.choices)
    # Without a default, its source says nothing; nor does it if the argument has no effect.
    is_bare = argument.default is None or argument.ignored
    if argument.is_required:
        default = "required"
    elif is_bare:
        default = ""
    else:
        default = f"`{_text(argument)}`"
    source = "" if is_bare or argument.is_required else SOURCES[argument.source]
    meaning = " ".join(filter(None, (argument.help, argument.ignored)))
    replaced = "".join(f" `{old}` becomes `{new}`." for old, new, _ in argument.replaced)
    return f"| `{argument.name}` | {values} | {default} | {source} | {meaning}{replaced} |\n"


def _text(argument: Argument) -> str:
    """Return the default as a user would write it."""
    value = argument.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
