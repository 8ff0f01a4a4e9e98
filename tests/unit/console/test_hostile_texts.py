"""Every text that a program, a submitter or a stranger chooses, on every page: it is never markup,
an attribute or an address, and characters that hide or reverse text are left out.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Final

import pytest

from tests.support.console_site import Site
from tests.support.jobs import WORKER_0, a_spec
from trainmaster.errors import RejectedError
from trainmaster.ports.metrics import Label, Metric

ATTACK: Final = (
    "'\"><x-evil onload=a()>&lt;x-evil&gt;</script><!-- \x1b[8m\u202e{{7*7}} javascript:a"
)
"""Ends attributes, elements and comments, and is an expression of templates."""
SHOWN: Final = "'\"><x-evil onload=a()>&lt;x-evil&gt;</script><!-- {{7*7}} javascript:a"
PAGES: Final = (
    "/jobs",
    "/jobs/digits_1?all=1&table=1",
    "/jobs/digits_1/logs",
    "/jobs/digits_1/resources",
    "/jobs/digits_1/replicas/worker-0",
    "/jobs/digits_1/clone",
    "/jobs/digits_1/resubmit",
    "/jobs/digits_1/labels",
    "/jobs/digits_1/delete",
    "/jobs/digits_1/cancel",
    "/cancel?job=digits_1",
    "/compare?job=digits_1&job=digits_1",
    "/installation",
)
SHOWN_ON: Final = {
    "/jobs",
    "/jobs/digits_1?all=1&table=1",
    "/jobs/digits_1/logs",
    "/jobs/digits_1/replicas/worker-0",
    "/installation",
}
"""Pages that show such a text as it is: otherwise the test would see none."""
ADDRESSES: Final = ("href", "src", "action", "formaction")
OWN: Final = ("/", "?", "#", "https://console.cloud.google.com/")


@dataclass
class Page(HTMLParser):
    """What a browser sees in a page."""

    text: str = ""
    tags: set[str] = field(default_factory=set)
    attributes: list[tuple[str, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture
def attacked(site: Site) -> Site:
    """A job of which every free text is hostile, a refused one, and its log and its series."""
    world = site.world
    extension = {
        "env": {"A": ATTACK},
        "packedFrom": {"folder": ATTACK, "commit": ATTACK},
        "convertedFrom": {
            "manifest": ATTACK,
            "substitutions": [
                dict.fromkeys(("field", "requested", "replacement", "reason"), ATTACK)
            ],
        },
    }
    with pytest.raises(RejectedError):
        world.submit({**a_spec(region=ATTACK), ATTACK: ATTACK})
    world.submit({**a_spec(args=[ATTACK]), "trainmaster": extension})
    world.deliver()
    world.report_all_ready()
    begin = world.now
    world.wait(600)
    error = {"type": ATTACK, "message": ATTACK, "frame": ATTACK, "causes": [ATTACK]}
    world.exit_program(WORKER_0, 1, error=error, tail=ATTACK)
    site.entries = [
        {
            "timestamp": "2026-11-21T03:00:05.000000001Z",
            "insertId": ATTACK,
            "severity": "INFO",
            "labels": {"ml.googleapis.com/task_name": ATTACK, "trainmaster/vm": ATTACK},
            "jsonPayload": {"message": ATTACK, ATTACK: ATTACK},
        }
    ]
    running = {Label.ATTEMPT: "1", Label.INCARNATION: "1"}
    for name in (f"metric/{ATTACK}", "step", "share", ATTACK):
        more = {**running, Label.NAME: name, Label.SOURCE: ATTACK}
        site.metrics.add(Metric.PROGRESS, "chief-0", begin, [0.1, 0.2], more=more)
    site.metrics.add(Metric.CPU, f"{ATTACK}-0", begin, [0.1, 0.2])
    site.metrics.add(Metric.GPU, "chief-0", begin, [0.1, 0.2], gpu=ATTACK)
    return site


@pytest.mark.parametrize("path", PAGES)
def test_text_that_others_choose_is_only_text(attacked: Site, path: str) -> None:
    source = attacked.text(path)
    page = Page()
    page.feed(source)
    assert "x-evil" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]
    others = [value for name, value in page.attributes if name in ADDRESSES if value]
    assert [value for value in others if not value.startswith(OWN)] == []
    assert not set(source) & set("\x1b\u202e")
    assert (SHOWN in page.text) == (path in SHOWN_ON)
