"""The door of the API: a request in, an answer out, whatever happens in between.

    404 no such method · 401 no token, or one that Google does not know · 403 not this project, or not permitted
    429 too often, by whom it is permitted · then the handler's own answer
    503 for errors that passes · 500 for a bug, which the log has whole

Answers and logs never contain the token.
"""

from __future__ import annotations

import logging
import re
from typing import Final

from shared.api import errors
from shared.api.errors import ApiError, Json
from shared.api.request import Answer, Call, Request, Service, key_of, meant
from shared.api.routes import Route, find
from shared.errors import TemporaryError
from shared.jobspec import InvalidJob
from shared.messaging import json_log
from shared.ports import UnknownTokenError

_BEARER: Final = re.compile(r"[Bb]earer +([!-~]{1,4096})")

_log = logging.getLogger(__name__)


def serve(request: Request, service: Service) -> Answer:
    json_log.start()
    with json_log.context(function="api", method=request.method, path=request.path[:200]):
        try:
            return Answer(200, _handle(request, service))
        except ApiError as error:
            error_kind = error
        except InvalidJob as invalid:
            error_kind = errors.invalid_job(invalid)
        except UnknownTokenError:
            error_kind = errors.bad_token()
        except TemporaryError as error:
            _log.warning("to be tried again: %s", error)
            error_kind = errors.unavailable()
        except Exception:  # noqa: BLE001 - a client reads Google's form, not a framework's page; the log has it whole
            _log.exception("%s %s failed", request.method, request.path[:200])
            error_kind = errors.internal()
    return Answer(error_kind.code, error_kind.body, error_kind.headers)


def _handle(request: Request, service: Service) -> Json:
    request = meant(request)
    found = find(request.method, request.path)
    if found is None:
        raise errors.no_method(request.method, request.path)
    route, params = found
    call = Call(request, params, _token(request), key_of(request, service.new_id))
    _permit(call, route, service)
    _count(call, route, service)
    return route.handle(call, service)


def _token(request: Request) -> str:
    match = _BEARER.fullmatch(request.headers.get("authorization", ""))
    if match is None:
        raise errors.no_token()
    return match[1]


def _permit(call: Call, route: Route, service: Service) -> None:
    if call.project != service.project:
        raise errors.other_project(call.project)
    if route.permission and route.permission not in service.access.granted(call.token, [route.permission]):
        raise errors.denied(route.permission, call.project)


def _count(call: Call, route: Route, service: Service) -> None:
    """Of those who may: strangers do not use up the project's quota, and what needs no permission proves nobody."""
    bucket = service.requests
    if bucket and route.permission and not route.creates and (wait_s := bucket.take()):
        raise errors.too_often(call.project, "requests", bucket.per_minute, wait_s)
