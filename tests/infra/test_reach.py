"""docs/security.md, "Who reaches whom": the table has every member that infra/ grants a role to,
and no other.
"""

from __future__ import annotations

from tests.infra import iam_table
from trainmaster_emulators.checkout import ROOT

PAGE = ROOT / "docs" / "security.md"
HEAD = "| from | reaches | does not reach |"


def members() -> list[str]:
    """Return the members in the first column of the table. A row may have several."""
    table = PAGE.read_text(encoding="utf-8").partition(HEAD)[2].partition("\n\n")[0]
    cells = [line.strip("| ").split(" | ")[0] for line in table.splitlines()[2:]]
    return [member for cell in cells for member in cell.replace("`", "").split(" · ")]


def test_table_of_who_reaches_whom_has_the_members_of_infra() -> None:
    assert sorted(members()) == sorted({grant.member for grant in iam_table.grants()})
