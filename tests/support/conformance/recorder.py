"""The pytest plugin: check each HTTP exchange of the test process.

A test in which one does not conform fails, unless it has the marker `nonconforming` with the
reason.

Recorded are the calls of `requests`, through which Google's REST clients and the project's own
sessions send, also to emulators in other processes; and what werkzeug's servers in this process
answer, whoever calls them. At the end, the report names how many exchanges of how many methods were
checked. gRPC messages are not recorded: they are objects of Google's generated classes, and
Google's own emulators answer them.
"""

from __future__ import annotations

import io
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, wraps
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
import requests
from werkzeug.serving import BaseWSGIServer

from tests.support.conformance.checker import Exchange, check

BODY_BYTES_MAX: Final = 1 << 20
_check = lru_cache(maxsize=2000)(check)
_lock = threading.Lock()
_exchanges: list[Exchange] = []
_methods: Counter[str] = Counter()
_spent_s: list[float] = []
"""Processor time of the checks since the end of the last test."""
_all_methods: Counter[str] = Counter()
_all_spent_s: list[float] = []
PROPERTY: Final = "conforming exchanges"

WsgiApplication = Callable[[dict[str, Any], Any], Iterable[bytes]]


def record(exchange: Exchange) -> None:
    """Keep the exchange.

    It is checked after the test: reading the documents would delay an answer by a second.
    """
    with _lock:
        _exchanges.append(exchange)


def check_recorded() -> list[str]:
    """Check the exchanges since the last call, and return the faults."""
    with _lock:
        exchanges = list(_exchanges)
        _exchanges.clear()
    if not exchanges:
        return []
    started = time.thread_time()
    faults: set[str] = set()
    for exchange in exchanges:
        method_id, found = _check(exchange)
        _methods[method_id] += bool(method_id)
        faults.update(found)
    _spent_s.append(time.thread_time() - started)
    return sorted(faults)


def _recording_client(send: Callable[..., requests.Response]) -> Callable[..., requests.Response]:
    @wraps(send)
    def recorded(
        session: requests.Session, request: requests.PreparedRequest, **options: Any
    ) -> requests.Response:
        response = send(session, request, **options)
        is_json = "json" in response.headers.get("content-type", "")
        if is_json and not options.get("stream") and len(response.content) <= BODY_BYTES_MAX:
            url = urlsplit(str(request.url))
            body = _text(request.body)
            record(
                Exchange(
                    str(request.method),
                    url.path,
                    url.query,
                    body,
                    response.status_code,
                    response.text,
                )
            )
        return response

    return recorded


def _recording_application(application: WsgiApplication) -> WsgiApplication:
    def recorded(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        size = int(environ.get("CONTENT_LENGTH") or 0)
        if size > BODY_BYTES_MAX or environ.get("HTTP_TRANSFER_ENCODING"):
            return application(environ, start_response)
        body = environ["wsgi.input"].read(size) if size else b""
        environ["wsgi.input"] = io.BytesIO(body)
        started: dict[str, Any] = {}

        def start(status: str, headers: list[tuple[str, str]], *rest: object) -> object:
            content_type = next(
                (value for name, value in headers if name.lower() == "content-type"), ""
            )
            started.update(status=int(status.split(maxsplit=1)[0]), is_json="json" in content_type)
            return start_response(status, headers, *rest)

        response = application(environ, start)
        if not started.get("is_json"):
            return response
        data = b"".join(response)
        path, query = (
            environ.get("RAW_URI", environ["PATH_INFO"]).partition("?")[0],
            environ.get("QUERY_STRING", ""),
        )
        text = data.decode("utf-8", "replace")
        record(
            Exchange(environ["REQUEST_METHOD"], path, query, _text(body), started["status"], text)
        )
        return [data]

    return recorded


def _recording_server(init: Callable[..., None]) -> Callable[..., None]:
    @wraps(init)
    def recorded(
        server: BaseWSGIServer,
        host: str,
        port: int,
        app: WsgiApplication,
        *rest: Any,
        **options: Any,
    ) -> None:
        init(server, host, port, _recording_application(app), *rest, **options)

    return recorded


def _text(body: object) -> str:
    if isinstance(body, bytes):
        return body.decode("utf-8", "replace")
    return body if isinstance(body, str) else ""


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "nonconforming: sends calls, or gets answers, that Google would not (recorder)"
    )
    requests.Session.send = _recording_client(requests.Session.send)  # type: ignore[method-assign]
    BaseWSGIServer.__init__ = _recording_server(BaseWSGIServer.__init__)  # type: ignore[method-assign]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """Fail the test if an exchange since its start does not conform to Google's documents."""
    try:
        yield
    finally:
        faults = check_recorded()
        if _methods:
            item.user_properties.append((PROPERTY, (dict(_methods), sum(_spent_s))))
            _methods.clear()
            _spent_s.clear()
    if faults and item.get_closest_marker("nonconforming") is None:
        pytest.fail(
            "\n".join(["calls or answers that Google's documents do not have:", *faults]),
            pytrace=False,
        )


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Add the counts of a test, which may have run in another process."""
    properties: dict[str, Any] = dict(report.user_properties)
    if report.when == "teardown" and PROPERTY in properties:
        counts, spent_s = properties[PROPERTY]
        _all_methods.update(counts)
        _all_spent_s.append(spent_s)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print how many calls were checked, and what that took."""
    counted = +_all_methods
    if counted:
        apis = Counter(method.partition(".")[0] for method in counted)
        words = ", ".join(f"{api} {count}" for api, count in sorted(apis.items()))
        terminalreporter.section("calls that Google's discovery documents have")
        terminalreporter.write_line(
            f"{counted.total()} exchanges of {len(counted)} methods ({words}), checked in"
            f" {sum(_all_spent_s):.1f} s"
        )
