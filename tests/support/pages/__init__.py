"""The parts of pages that are made of the code: `make docs` writes them into the pages of the site.

A page in the repository has a placeholder for each of them:

    <!-- make docs: NAME -->
    A sentence for readers of the repository: where the part comes from.
    <!-- end -->

Nothing is committed twice, so no part can differ from the code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from bench import costs, report
from tests.infra import iam_table
from tests.support.pages import (
    arguments,
    assumptions,
    attacks,
    machines,
    reasons,
    runtimes,
    settings,
    variables,
)

PARTS: Final[Mapping[str, Callable[[], str]]] = {
    "arguments": arguments.sections,
    "assumptions": assumptions.table,
    "attached": machines.attached_gpus,
    "attacks": attacks.table,
    "benchmarks": report.page_part,
    "costs": costs.tables,
    "gpus": machines.built_in_gpus,
    "grants": iam_table.table,
    "reasons": reasons.sections,
    "runtimes": runtimes.tables,
    "scale": costs.scale_table,
    "settings": settings.table,
    "tiers": machines.tiers,
    "variables": variables.table,
}
"""Name in a placeholder → function that returns the part in Markdown."""
PLACEHOLDER: Final = re.compile(r"(?ms)^<!-- make docs: (?P<name>\w+) -->\n.*?^<!-- end -->\n")


def complete(text: str) -> str:
    """Return the text of a page with each placeholder replaced by its part.

    Raises KeyError if a placeholder has an unknown name.
    """
    return PLACEHOLDER.sub(lambda match: _part(match["name"]).rstrip("\n") + "\n", text)


@cache
def read_page(path: Path) -> str:
    """Return the text of a page as the site has it."""
    return complete(path.read_text(encoding="utf-8"))


@cache
def _part(name: str) -> str:
    return PARTS[name]()
