"""Serve one function under functions-framework, as in production, but refuse requests of web pages.

python -m trainmaster_emulators.services.function_server --source FILE --target NAME --fd NUMBER
[--push-time-scale S]

`--fd` is the descriptor of the socket on which it listens. With `--push-time-scale`, requests wait
as Pub/Sub's messages would after failures (`realism.push_flow`).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

from functions_framework import create_app
from functions_framework._http import create_server

from trainmaster_emulators.browser_guard import BrowserGuard
from trainmaster_emulators.realism.push_flow import PushedApplication, PushFlow
from trainmaster_emulators.rest.command_line import EmulatorParser

KEEP_ALIVE_S: Final = 610
"""Longest time for which a connection may be idle, as with Google's front end.

After gunicorn's default of 2 s, a client that reuses its connection for a POST, which it may not
repeat, is cut off. Source: Cloud Load Balancing, "Timeouts and retries".
"""


def main(argv: list[str] | None = None) -> int:
    """Serve until the process ends.

    This is the command line of functions-framework with the guard around its app.
    """
    parser = EmulatorParser("services.function_server")
    parser.add_argument("--source", type=Path, required=True, help="file of the function")
    parser.add_argument("--target", required=True, help="name of the function")
    parser.add_argument("--fd", type=int, required=True, help="descriptor of a socket that listens")
    parser.add_argument(
        "--push-time-scale", type=float, help="delay requests after failures, as Pub/Sub does"
    )
    options = parser.parse_args(argv)
    app = create_app(options.target, str(options.source), "http")
    if options.push_time_scale is not None:
        app.wsgi_app = PushedApplication(app.wsgi_app, PushFlow(options.push_time_scale))
    app.wsgi_app = BrowserGuard(app.wsgi_app)
    create_server(app, debug=False, bind=f"fd://{options.fd}", keepalive=KEEP_ALIVE_S).run("", 0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
