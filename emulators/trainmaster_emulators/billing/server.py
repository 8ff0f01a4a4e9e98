"""HTTP: /v1/services/SERVICE/skus of Cloud Billing, with pages, and errors in Google's format."""

from __future__ import annotations

from typing import Final

from werkzeug.wrappers import Request

from trainmaster_emulators.billing import catalogue
from trainmaster_emulators.rest.api_errors import ApiError, Json
from trainmaster_emulators.rest.server import RestServer

PAGE_MAX: Final = 5_000  # Source: ListSkusRequest.page_size


class BillingServer(RestServer):
    """The WSGI application. `page_max`: largest page, smaller than Google's in tests of paging."""

    def __init__(self, page_max: int = PAGE_MAX) -> None:
        self._page_max = page_max
        self.calls = 0
        """Calls of services.skus.list so far."""
        super().__init__(("GET", "/v1/services/<service>/skus", self._skus))

    def _skus(self, request: Request, service: str) -> Json:
        self.calls += 1
        if (currency := request.args.get("currencyCode", "USD") or "USD") != "USD":
            raise ApiError(400, "INVALID_ARGUMENT", f"This emulator has no prices in {currency}.")
        found = catalogue.skus(service)
        if not found:
            raise ApiError(404, "NOT_FOUND", f"Service {service} was not found.")
        begin = int(request.args.get("pageToken") or 0)
        end = begin + min(
            int(request.args.get("pageSize") or self._page_max) or self._page_max, self._page_max
        )
        return {
            "skus": list(found[begin:end]),
            "nextPageToken": str(end) if end < len(found) else "",
        }
