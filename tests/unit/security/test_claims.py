"""claims.yaml: each paragraph of docs/security.md has tests, or says what is not tested."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from tests.unit.security.test_table import ROOT, functions

CLAIMS: list[dict[str, Any]] = yaml.safe_load(
    Path(__file__).with_name("claims.yaml").read_text(encoding="utf-8")
)
GENERATED = re.compile(r"<!-- make docs.*?<!-- end -->", re.DOTALL)


def paragraphs() -> list[str]:
    """Return the paragraphs and the items of lists as plain text, without headings and tables."""
    page = GENERATED.sub("", (ROOT / "docs" / "security.md").read_text(encoding="utf-8"))
    blocks = (block.strip() for block in re.split(r"\n\n|\n(?=- )", page))
    prose = [block for block in blocks if block and not block.startswith(("#", "|"))]
    links = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", block) for block in prose)
    return [" ".join(re.sub(r"[*`]", "", text).removeprefix("- ").split()) for text in links]


def test_each_paragraph_has_tests_or_says_what_is_not_tested() -> None:
    found = {
        text: [claim for claim in CLAIMS if text.startswith(claim["begins"])]
        for text in paragraphs()
    }
    assert [text[:60] for text, claims in found.items() if len(claims) != 1] == []
    used = [claims[0]["begins"] for claims in found.values()]
    assert sorted(used) == sorted(claim["begins"] for claim in CLAIMS), "a paragraph is gone"


def test_claims_name_existing_tests() -> None:
    for claim in CLAIMS:
        assert claim.get("tests") or claim.get("untested"), claim["begins"]
        for test in claim.get("tests", ()):
            path, _, function = test.partition("::")
            assert function.startswith("test_"), test
            assert function in functions(ROOT / path), test
