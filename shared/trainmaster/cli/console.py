"""`trainmaster console`: the console on this machine, with the caller's own credentials."""

from __future__ import annotations

import getpass
import logging
import os
import webbrowser
from collections.abc import Mapping
from importlib.metadata import version
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trainmaster.cli.installation import choose_installation
from trainmaster.cli.output import complain, say
from trainmaster.errors import PermanentError

if TYPE_CHECKING:
    from werkzeug.serving import BaseWSGIServer

LOOPBACK: Final = "127.0.0.1"


def console(
    browser: Annotated[bool, typer.Option(help="Open the address in the default browser.")] = True,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0: any free one.")] = 0,
) -> None:
    """Show jobs, timelines, decisions and logs in a browser, until Ctrl-C.

    The console listens on this machine only and acts with your own credentials. Its address works once.
    """
    server, address = start(port)
    say(address)
    complain("The console runs until Ctrl-C.")
    if browser:
        webbrowser.open(address)
    try:
        server.serve_forever()
    finally:
        server.server_close()


def serve_stack(environment: Mapping[str, str]) -> str:
    """Serve the console of a local stack until this process ends. Return the address, which works once.

    `environment`: the variables that connect clients to the stack. They replace those of this process.
    """
    os.environ.update(environment)
    server, address = start(0)
    Thread(target=server.serve_forever, name="console", daemon=True).start()
    return address


def start(port: int) -> tuple[BaseWSGIServer, str]:
    """Return a server on loopback, and the address that signs in. Raises PermanentError for a port in use."""
    choose_installation()
    from werkzeug.serving import make_server

    from trainmaster.console.sign_in import LoopbackSignIn
    from trainmaster.console.web import create_app
    from trainmaster.cost.report import CostSources
    from trainmaster.wiring.console import console as console_of_installation
    from trainmaster.wiring.price_list import price_list
    from trainmaster.wiring.prices import checkpoint_times

    sign_in = LoopbackSignIn(getpass.getuser())
    sources = CostSources(price_list, checkpoint_times())
    app = create_app(console_of_installation(version("trainmaster"), cost_sources=sources), sign_in)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    try:
        server = make_server(LOOPBACK, port, app, threaded=True)
    except (OSError, SystemExit) as error:  # werkzeug exits where the port is in use
        raise PermanentError(f"--port {port}: cannot listen on it ({error}). Leave it out to use a free port") from None
    sign_in.hosts = (f"{LOOPBACK}:{server.server_port}", f"localhost:{server.server_port}")
    return server, f"http://{sign_in.hosts[0]}/?token={sign_in.token}"
