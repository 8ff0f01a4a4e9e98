"""Refuse requests of web pages, which must not control the local stack.

A page that the user visits can send requests to this machine, and the stack starts programs.
Browsers mark requests of pages with these headers, and pages cannot change them:

    Host              a foreign name, if the page's own name was rebound to a loopback address
    Origin            on every request except GET and HEAD, and on every request whose response
                      the page can read
    Sec-Fetch-Site    the relation between the page and this server; `none` if the user typed
                      the address

Clients of Google Cloud send neither `Origin` nor `Sec-Fetch-Site`, and use the address of the stack
as `Host`. Sources: https://fetch.spec.whatwg.org/#origin-header,
https://www.w3.org/TR/fetch-metadata/.
"""

from __future__ import annotations

import http
import ipaddress
import json
from collections.abc import Callable, Iterable, Mapping
from http.server import BaseHTTPRequestHandler
from types import MappingProxyType
from typing import Any, ClassVar, Final

TYPED_BY_THE_USER: Final = "none"
JSON_TYPE: Final = "application/json; charset=UTF-8"
JSON_HEADERS: Final = MappingProxyType({"Content-Type": JSON_TYPE})
STATUS: Final = http.HTTPStatus.FORBIDDEN


def find_refusal(origin: str | None, fetch_site: str | None) -> str | None:
    """Return why a request with these headers is refused; None if no web page sent it."""
    if origin is not None:
        return f"the local stack does not serve web pages (Origin: {origin})"
    if fetch_site not in (None, TYPED_BY_THE_USER):
        return f"the local stack does not serve web pages (Sec-Fetch-Site: {fetch_site})"
    return None


def find_host_refusal(host: str | None) -> str | None:
    """Return why a request with this Host header is refused; None if the header contains an address
    of the stack.
    """
    name = (host or "").partition(":")[0].lower()
    if name == "localhost" or _is_loopback_address(name):
        return None
    return (
        "the local stack is called by its address, 127.0.0.1:PORT or localhost:PORT, not Host:"
        f" {host}"
    )


def _is_loopback_address(name: str) -> bool:
    """Return whether `name` is an address in 127.0.0.0/8.

    No host name is accepted, because its owner can make it resolve to this machine. All of
    127.0.0.0/8 counts, because each host of an emulated slice has its own loopback address.
    """
    try:
        return ipaddress.IPv4Address(name).is_loopback
    except ValueError:
        return False


def refusal_body(reason: str) -> bytes:
    """Return an error in Google's format."""
    return json.dumps(
        {"error": {"code": STATUS.value, "message": reason, "status": "PERMISSION_DENIED"}}
    ).encode()


class BrowserGuard:
    """WSGI middleware that refuses requests of web pages, and passes all others on."""

    def __init__(self, application: Callable[..., Iterable[bytes]]) -> None:
        self._application = application

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        reason = find_host_refusal(environ.get("HTTP_HOST")) or find_refusal(
            environ.get("HTTP_ORIGIN"), environ.get("HTTP_SEC_FETCH_SITE")
        )
        if reason is None:
            return self._application(environ, start_response)
        body = refusal_body(reason)
        headers = [
            ("Content-Type", JSON_TYPE),
            ("Content-Length", str(len(body))),
            ("Connection", "close"),
        ]
        start_response(f"{STATUS.value} {STATUS.phrase}", headers)
        return [body]


class GuardedHandler(BaseHTTPRequestHandler):
    """Base of the request handlers of the standard library's and of werkzeug's server."""

    checks_host: ClassVar[bool] = True
    """False for a proxy, whose clients send the name of the host behind it."""

    def parse_request(self) -> bool:
        """Return whether the server calls the method of the request.

        Otherwise, the response is complete.
        """
        if not super().parse_request():
            return False
        reason = find_refusal(self.headers.get("Origin"), self.headers.get("Sec-Fetch-Site"))
        if self.checks_host:
            reason = find_host_refusal(self.headers.get("Host")) or reason
        if reason is not None:
            # The connection is closed, because the request's body is unread.
            self.send_body(STATUS, refusal_body(reason), {**JSON_HEADERS, "Connection": "close"})
        return reason is None

    def send_body(
        self,
        status: int,
        body: bytes,
        headers: Mapping[str, str] = JSON_HEADERS,
        reason: str | None = None,
    ) -> None:
        """Send a whole response.

        `headers`: without its length. `reason` None: the usual phrase of the status.
        """
        self.send_response(status, reason)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()
