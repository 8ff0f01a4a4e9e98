"""Serve one function under functions-framework, as in production, but refuse requests of web pages.

python -m trainmaster_emulators.services.function_server --source FILE --target NAME --host HOST --port PORT \
        [--push-time-scale S]

With `--push-time-scale`, requests wait as Pub/Sub's messages would after failures (`realism.push_flow`).
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from functions_framework import create_app
from functions_framework._http import create_server

from trainmaster_emulators.browser_guard import BrowserGuard
from trainmaster_emulators.realism.push_flow import PushedApplication, PushFlow

IDLE_S: Final = 620
"""How long an idle connection stays open. Source: the timeout of Google's load balancers, plus 10 s."""


def main(argv: list[str] | None = None) -> int:
    """Serve until the process ends. This is the command line of functions-framework with the guard around its app."""
    parser = argparse.ArgumentParser(prog="python -m trainmaster_emulators.services.function_server")
    parser.add_argument("--source", type=Path, required=True, help="file of the function")
    parser.add_argument("--target", required=True, help="name of the function")
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--push-time-scale", type=float, help="delay requests after failures, as Pub/Sub does")
    options = parser.parse_args(argv)
    app = create_app(options.target, str(options.source), "http")
    if options.push_time_scale is not None:
        app.wsgi_app = PushedApplication(app.wsgi_app, PushFlow(options.push_time_scale))
    app.wsgi_app = BrowserGuard(app.wsgi_app)
    create_server(app, debug=False, keepalive=IDLE_S).run(options.host, options.port)
    return 0


if __name__ == "__main__":
    sys.exit(main())
