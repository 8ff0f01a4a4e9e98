"""HTTP: /v1/services/SERVICE/skus of Cloud Billing, with pages, and errors in Google's format."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, Final

from werkzeug.exceptions import HTTPException
from werkzeug.routing import Map, Rule
from werkzeug.serving import BaseWSGIServer, make_server
from werkzeug.wrappers import Request, Response

from emulators.billing import catalogue
from emulators.compute.server import QuietHandler
from emulators.logging.api_errors import ApiError

PAGE_MAX: Final = 5_000  # Source: ListSkusRequest.page_size


class BillingServer:
    """The WSGI application. `page_max`: largest page, smaller than Google's in tests of paging."""

    def __init__(self, page_max: int = PAGE_MAX) -> None:
        self._page_max = page_max
        self.calls = 0
        """Calls of services.skus.list so far."""
        self._map = Map([Rule("/v1/services/<service>/skus", endpoint="skus", methods=["GET"])])

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        try:
            _, arguments = self._map.bind_to_environ(environ).match()
            response = _respond(self._skus(request, arguments["service"]))
        except ApiError as error:
            response = _respond(error.body(), error.code)
        except HTTPException as error:
            missing = ApiError(404, "NOT_FOUND", f"This emulator has no {request.method} {request.path}.")
            response = _respond(missing.body(), error.code or 500)
        return response(environ, start_response)

    def _skus(self, request: Request, service: str) -> dict[str, Any]:
        self.calls += 1
        if (currency := request.args.get("currencyCode", "USD") or "USD") != "USD":
            raise ApiError(400, "INVALID_ARGUMENT", f"This emulator has no prices in {currency}.")
        found = catalogue.skus(service)
        if not found:
            raise ApiError(404, "NOT_FOUND", f"Service {service} was not found.")
        begin = int(request.args.get("pageToken") or 0)
        end = begin + min(int(request.args.get("pageSize") or self._page_max) or self._page_max, self._page_max)
        return {"skus": list(found[begin:end]), "nextPageToken": str(end) if end < len(found) else ""}


def listen(host: str, port: int, application: BillingServer) -> BaseWSGIServer:
    return make_server(host, port, application, threaded=True, request_handler=QuietHandler)


def _respond(body: dict[str, Any], status: int = 200) -> Response:
    return Response(json.dumps(body), status, content_type="application/json")
