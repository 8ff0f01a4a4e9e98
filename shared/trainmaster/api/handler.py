"""Handle a request: find its route, check the caller, call the route, turn errors into responses.

In this order:

    404  no such method
    401  no token, or one that Google does not know
    403  wrong project, no permission or scope; or Google does not check the caller's permissions,
         because the API is disabled in the caller's project
    429  quota exceeded by a permitted caller
    …    the response of the route
    503  a transient error, at any step
    500  a bug, with details in the log

Responses and logs never contain the token.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from trainmaster.api import errors
from trainmaster.api.errors import ApiError, Json
from trainmaster.api.request import (
    VALIDATE_ONLY,
    Call,
    Request,
    Response,
    Service,
    apply_method_override,
    idempotency_key,
    validates_only,
)
from trainmaster.api.routes import Route, find_route
from trainmaster.errors import TemporaryError
from trainmaster.jobspec.problems import InvalidJob
from trainmaster.messaging import json_log
from trainmaster.ports import CallersProjectError, UnknownTokenError

_PATH_CHARS_MAX: Final = 200
"""Characters of a path in the log."""
_BEARER: Final = re.compile(r"[Bb]earer +([!-~]{1,8192})")
_TOKEN: Final = re.compile(r"ya29\.[\w.~+/=-]{16,}|eyJ[\w-]+\.[\w-]+\.[\w-]+", re.ASCII)
"""Google's access tokens, and tokens that service accounts sign.

Texts of another shape are never looked up.
"""

_log = logging.getLogger(__name__)


def serve(request: Request, service: Service) -> Response:
    """Return the response of a request. Raises nothing."""
    with json_log.context(
        function="api", method=request.method, path=request.path[:_PATH_CHARS_MAX]
    ):
        try:
            return Response(200, _handle(request, service))
        except ApiError as api_error:
            error = api_error
        except InvalidJob as invalid:
            error = errors.invalid_job(invalid)
        except UnknownTokenError:
            error = errors.invalid_token()
        except CallersProjectError as callers_project:
            error = errors.unchecked_permission(str(callers_project))
        except TemporaryError as temporary:
            _log.warning("transient error, the client may retry: %s", temporary)
            error = errors.unavailable()
        # Clients expect Google's form, not a framework's page. The log has the details.
        except Exception:  # noqa: BLE001
            _log.exception("%s %s failed", request.method, request.path[:_PATH_CHARS_MAX])
            error = errors.internal()
    return Response(error.code, error.body, error.headers)


def _handle(request: Request, service: Service) -> Json:
    request = apply_method_override(request)
    match = find_route(request.method, request.path)
    if match is None:
        raise errors.unknown_method(request.method, request.path)
    route, params = match
    call = Call(request, params, _bearer_token(request), idempotency_key(request, service.new_id))
    _check_permission(call, route, service)
    creates_job = not _validates_only(request, route) and route.creates_job
    if not creates_job:  # creations have a quota of their own
        _count_request(call, route, service)
    return route.handle(call, service)


def _bearer_token(request: Request) -> str:
    """Return the token of a request. Raises ApiError and UnknownTokenError."""
    match = _BEARER.fullmatch(request.headers.get("authorization", ""))
    if match is None:
        raise errors.missing_token()
    if _TOKEN.fullmatch(match[1]) is None:
        raise UnknownTokenError
    return match[1]


def _check_permission(call: Call, route: Route, service: Service) -> None:
    """Raise ApiError for a caller who may not call the route."""
    if call.project != service.project:
        raise errors.wrong_project(call.project)
    if route.permission:
        granted = service.access.api_permissions(call.token, [route.permission])
        if route.permission not in granted:
            raise errors.permission_denied(route.permission, call.project)
    if route.changes_something and not service.access.has_full_scope(call.token):
        raise errors.insufficient_scope()


def _validates_only(request: Request, route: Route) -> bool:
    """Return whether the request creates nothing. Raises ApiError if its method cannot do that."""
    asked = validates_only(request)
    if asked and not route.creates_job:
        raise errors.invalid_argument(
            VALIDATE_ONLY, "is a parameter of the methods that create a job, and of no other"
        )
    return asked


def _count_request(call: Call, route: Route, service: Service) -> None:
    """Count a request of a permitted caller. Raises ApiError above the project's quota.

    Unauthorized callers cannot exhaust the quota. Routes without a permission check are not
    counted.
    """
    bucket = service.requests
    if bucket is None or not route.permission:
        return
    wait_s = bucket.take()
    if wait_s:
        raise errors.rate_limited(call.project, "requests", bucket.per_minute, wait_s)
