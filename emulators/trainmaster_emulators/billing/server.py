"""HTTP: /v1/services/SERVICE/skus of Cloud Billing, with pages, and errors in Google's format."""

from __future__ import annotations

from typing import Final

from werkzeug.wrappers import Request

from trainmaster_emulators.billing import catalogue
from trainmaster_emulators.rest import pages
from trainmaster_emulators.rest.api_errors import Json, StatusError, invalid
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
        currency = request.args.get("currencyCode") or "USD"
        if currency != "USD":
            raise invalid(f"This emulator has no prices in {currency}.")
        skus = catalogue.skus(service)
        if not skus:
            raise StatusError("NOT_FOUND", f"Service {service} was not found.")
        error = invalid("page_size and page_token must be numbers.")
        size = pages.page_size(request.args.get("pageSize", ""), self._page_max, error)
        token = request.args.get("pageToken", "")
        shown, next_token = pages.numbered_page(skus, token, size, error)
        return {"skus": list(shown), "nextPageToken": next_token}
