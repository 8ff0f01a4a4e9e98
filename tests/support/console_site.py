"""A console on adapters in memory, and a signed-in client of its WSGI application."""

from __future__ import annotations

import json
import time
import weakref
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from tests.support.metrics import FakeMetrics
from tests.support.world import FixedAddresses, World
from trainmaster.console.actions import Actions, all_denied
from trainmaster.console.caches import LedgerCache
from trainmaster.console.job_counter import JobCounter
from trainmaster.console.pages.log_window import LogQuery
from trainmaster.console.pages.service import Console
from trainmaster.console.sign_in import LoopbackSignIn
from trainmaster.console.web import create_app
from trainmaster.cost.report import CostSources
from trainmaster.errors import TemporaryError
from trainmaster_emulators.logging.entries import Entries, Row, parse_entry
from trainmaster_emulators.logging.log_filter import parse

HOST = "127.0.0.1:8080"
ORIGIN = f"http://{HOST}"
READ_ONLY = "This console is read-only: open trainmaster-console-operator."


@dataclass
class Site:
    """The console of a world."""

    world: World = field(default_factory=World)
    entries: list[dict[str, Any]] = field(default_factory=list)
    """What Cloud Logging holds, the newest first."""
    queries: list[str] = field(default_factory=list)
    """Filters of the calls of Cloud Logging."""
    log_calls_left: int | None = None
    """Calls until the quota of Cloud Logging is used up; None: it never is."""
    metrics: FakeMetrics = field(default_factory=FakeMetrics)
    is_read_only: bool = False
    cost_sources: CostSources = field(default_factory=CostSources)
    count_wait_s: float | None = None
    """How long a page waits for the numbers of jobs; None: until they are known."""
    _log: Entries | None = None
    _logged: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The entries of `_log` by their identity, which no other entry gets while they are kept."""

    def __post_init__(self) -> None:
        self.sign_in = LoopbackSignIn("anna@example.com", (HOST, "localhost:8080"))
        self.app = create_app(self.console(), self.sign_in)
        self.client: FlaskClient = self.app.test_client()

    def console(self) -> Console:
        """Return the console of the world as it is now."""
        return Console(
            project="my-project",
            store=self.world.store,
            ledgers=LedgerCache(self.world.store),
            counter=JobCounter(self.world.store, self.count_wait_s),
            read_log=self._read_log,
            metrics=self.metrics,
            address_book=FixedAddresses(),
            clock=lambda: self.world.now,
            limits=self.world.limits,
            ml_unit_price=None,
            cost_sources=self.cost_sources,
            actions=Actions(
                lambda: self.world.deps, lambda: all_denied(READ_ONLY) if self.is_read_only else {}
            ),
        )

    def console_with(self, actions: Actions) -> Console:
        """Return the same console with other actions of its buttons."""
        return replace(self.console(), actions=actions)

    def _read_log(self, query: LogQuery) -> tuple[list[dict[str, Any]], str]:
        """Answer as Cloud Logging does: the filter, the order and the pages are those of its
        emulator.
        """
        self.queries.append(query.filter)
        if self.log_calls_left is not None:
            if not self.log_calls_left:
                raise TemporaryError("429: the quota of read requests per minute is used up")
            self.log_calls_left -= 1
        stored = self._stored()
        after = tuple(json.loads(query.token)) if query.token else None
        found, last = stored.page(
            ["projects/my-project"],
            parse(query.filter),
            after,
            query.limit,
            descending=query.newest_first,
        )
        return [json.loads(entry) for entry in found], json.dumps(last) if last else ""

    def _stored(self) -> Entries:
        """Return a log with `entries`: the last one with the new entries, or a new one if an entry
        was removed.
        """
        if self._log is None or not self._logged.keys() <= set(map(id, self.entries)):
            self._log, self._logged = Entries(Path(":memory:")), {}
            weakref.finalize(self, self._log.close)
        added = [entry for entry in self.entries if id(entry) not in self._logged]
        self._log.add([self._parse(entry) for entry in added])
        self._logged.update((id(entry), entry) for entry in added)
        return self._log

    def _parse(self, entry: dict[str, Any]) -> Row:
        labels = {"ml.googleapis.com/job_id": "digits_1", **entry.get("labels", {})}
        defaults = {
            "logName": "projects/my-project/logs/trainmaster",
            "resource": {"type": "ml_job"},
        }
        return parse_entry(
            {**entry, "labels": labels}, defaults, time.time_ns() + 365 * 86_400 * 10**9
        )

    def open(self) -> None:
        """Sign in as the command line does."""
        response = self.client.get(f"/?token={self.sign_in.token}", base_url=ORIGIN)
        assert response.status_code == 303

    def get(self, path: str, **headers: str) -> TestResponse:
        return self.client.get(
            path, base_url=ORIGIN, headers={k.replace("_", "-"): v for k, v in headers.items()}
        )

    def text(self, path: str) -> str:
        response = self.get(path)
        assert response.status_code == 200, response.text
        return response.text

    def post(self, path: str, token: str | None = None, **headers: str) -> TestResponse:
        """Send a form as the browser does; `headers` override."""
        return self.send(
            path, {"token": self.form_token(path) if token is None else token}, **headers
        )

    def send(self, path: str, form: dict[str, str], **headers: str) -> TestResponse:
        """Send a form with these fields as the browser does; `headers` override."""
        sent = {"Origin": ORIGIN, "Sec-Fetch-Site": "same-origin"} | {
            name.replace("_", "-"): value for name, value in headers.items()
        }
        return self.client.post(path, base_url=ORIGIN, data=form, headers=sent)

    def form_token(self, path: str) -> str:
        return self.text(path).partition('name="token" value="')[2].partition('"')[0]
