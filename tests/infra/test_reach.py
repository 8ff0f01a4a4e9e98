"""docs/security.md, "Who reaches whom": the table has every grant of infra/, and no other."""

from __future__ import annotations

import re
from collections import defaultdict

from tests.infra import iam_table
from trainmaster_emulators.process.state import ROOT

PAGE = ROOT / "docs" / "security.md"
HEAD = "| from | grants | reaches | does not reach |"


def cell(member: str) -> str:
    """Return the grants of one member, as the table has them: role without its prefix,
    resources.
    """
    by_role: dict[str, list[str]] = defaultdict(list)
    for grant in iam_table.grants():
        if grant.member == member:
            condition = f" ({grant.condition})" if grant.condition else ""
            by_role[grant.role.removeprefix("roles/").removesuffix(" (iam.tf)")].append(
                f"{grant.resource}{condition}"
            )
    return "; ".join(
        f"`{role}` on {', '.join(sorted(places))}" for role, places in sorted(by_role.items())
    )


def rows() -> dict[str, str]:
    table = PAGE.read_text(encoding="utf-8").partition(HEAD)[2].partition("\n\n")[0]
    cells = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    return {
        member.strip(): row[1] for row in cells for member in re.sub(r"`", "", row[0]).split(" · ")
    }


def test_table_of_who_reaches_whom_has_the_grants_of_infra() -> None:
    expected = {grant.member: cell(grant.member) for grant in iam_table.grants()}
    assert rows() == expected
