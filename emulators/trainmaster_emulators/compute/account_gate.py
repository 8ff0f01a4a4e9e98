"""IAM for Compute Engine's API: a separate port for `provision`, which refuses calls that infra/ does not permit.

`realism.compute_access` has the rules. The port identifies the caller, because clients of an emulator send no
token.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

from werkzeug.wrappers import Request, Response

from trainmaster_emulators.machines.api_errors import ApiError
from trainmaster_emulators.realism.call_access import REFUSED
from trainmaster_emulators.realism.compute_access import granted_access, refusal, refused_vm, vm_prefix

OWN_CALLS: Final = "/emulator/"


class AccountGate:
    """WSGI middleware. Calls of the emulator's own API are not checked."""

    def __init__(
        self, application: Callable[..., Iterable[bytes]], infra: Path, name_of: Callable[[str, str], str]
    ) -> None:
        """`infra`: folder with the grants. `name_of`: (zone, name or id of a VM) → its name."""
        self._application, self._name_of = application, name_of
        self._grants, self._prefix = granted_access(infra), vm_prefix(infra)

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        request = Request(environ)
        if request.path.startswith(OWN_CALLS):
            return self._application(environ, start_response)
        data = request.get_data()
        # The application itself refuses a body that is not a JSON object.
        body = request.get_json(force=True, silent=True) if data else {}
        fields = body if isinstance(body, dict) else {}
        message = refusal(self._grants, request.method, request.path, fields)
        message = message or refused_vm(self._prefix, request.path, fields, self._name_of)
        if not message:
            unread = {"wsgi.input": io.BytesIO(data), "CONTENT_LENGTH": str(len(data))}
            return self._application({**environ, **unread}, start_response)
        print(f"{REFUSED}{message}", flush=True)
        error = ApiError(403, "forbidden", message)
        response = Response(json.dumps(error.body()), error.status, content_type="application/json; charset=UTF-8")
        return response(environ, start_response)
