"""Every reason of a decision is explained, with the rules that use it."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import trainmaster.core.rules
from tests.support.pages.reasons import sections
from trainmaster.core.decisions import Reason, Rule
from trainmaster.presentation.reasons import reason_lines, reasons_by_topic

TEXTS = {
    reason: text for reasons in reasons_by_topic().values() for reason, text in reasons.items()
}
RULE_OF_HELPER = {
    "stale": Rule.STALE,
    "VmEnd": Rule.VM_LOST,
    "_continue": Rule.CAPACITY,
}
"""Functions of the rules that decide by one rule, with a reason that they are given."""


def test_every_reason_is_explained_once() -> None:
    explained = Counter(reason for reasons in reasons_by_topic().values() for reason in reasons)
    assert explained == Counter(Reason)


def decided() -> Iterator[tuple[Rule, Reason]]:
    """Yield each pair of a rule and a reason that a call in core/rules/ names."""
    for path in Path(*trainmaster.core.rules.__path__).glob("*.py"):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call):
                named = [ast.unparse(argument) for argument in call.args]
                rules = [
                    Rule[name.removeprefix("Rule.")]
                    for name in named
                    if re.fullmatch(r"Rule\.\w+", name)
                ]
                rules += [
                    rule for name, rule in RULE_OF_HELPER.items() if ast.unparse(call.func) == name
                ]
                reasons = [
                    Reason[name.removeprefix("Reason.")]
                    for name in named
                    if re.fullmatch(r"Reason\.\w+", name)
                ]
                yield from ((rule, reason) for rule in rules for reason in reasons)


@pytest.mark.parametrize(("rule", "reason"), sorted(set(decided())))
def test_explanation_names_the_rule_that_decides(rule: Rule, reason: Reason) -> None:
    assert int(rule) in TEXTS[reason].rules


@pytest.mark.parametrize("reason", Reason)
def test_explanation_is_whole_sentences(reason: Reason) -> None:
    text = TEXTS[reason]
    for sentence in filter(None, (text.means, text.do)):
        assert sentence[0].isupper()
        assert sentence.endswith(".")
        assert sentence.count("`") % 2 == 0


def test_links_within_the_page_lead_to_its_headings() -> None:
    headings = {
        heading.lower().replace(" ", "-") for heading in re.findall(r"(?m)^##+ (.*)", sections())
    }
    assert set(re.findall(r"\]\(#([^)]+)\)", sections())) <= headings


def test_explanation_of_a_reason_says_what_it_means_and_what_to_do() -> None:
    means, rules, do = reason_lines(Reason.OUT_OF_MEMORY).splitlines()
    assert means.startswith("out_of_memory: The kernel")
    assert rules == "Rules: 8"
    assert do.startswith("What to do: Choose a machine type with more memory")
    assert "What to do" not in reason_lines(Reason.CANCELLED_BY_USER)


def test_explanation_in_a_terminal_names_pages_instead_of_linking_to_them() -> None:
    assert not [reason for reason in Reason if "](" in reason_lines(reason)]
    assert 'must do (page "save-on-notice" of the documentation).' in reason_lines(
        Reason.MEMBERS_SAVE
    )
