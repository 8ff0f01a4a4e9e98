"""The tables of arguments in docs/algorithms.md, from the arguments of the algorithms."""

from __future__ import annotations

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
    keras = [
        item
        for item in TABLES["linear_learner"].arguments
        if item not in TABULAR and item not in TRAINING
    ]
    wide = [
        item
        for item in TABLES["wide_deep_learner"].arguments
        if item not in TABULAR and item not in TRAINING
    ]
    net = [
        item for item in TABLES["tab_net"].arguments if item not in TABULAR and item not in TRAINING
    ]
    trees = [item for item in TABLES["boosted_trees"].arguments if item not in TABULAR]
    apart = [
        item
        for item in TABLES["xgboost_dist"].arguments
        if item not in TABLES["boosted_trees"].arguments
    ]
    parts = (
        ("All but `xgboost_dist`, which has the paths only", list(TABULAR)),
        ("`boosted_trees`, `xgboost_dist`", trees),
        ("Only `xgboost_dist`", apart),
        ("`linear_learner`, `wide_deep_learner`, `tab_net`", list(TRAINING)),
        ("`linear_learner`", keras),
        ("`wide_deep_learner`", wide),
        ("`tab_net`", net),
    )
    return (
        "".join(
            f"\n### {title}\n{HEAD}{''.join(map(_row, arguments))}" for title, arguments in parts
        )
        + "\n"
    )


def _row(argument: Argument) -> str:
    values = (
        ", ".join(f"`{choice}`" for choice in argument.choices)
        if argument.choices
        else argument.allowed
    )
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
    value = argument.default
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return ",".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)
