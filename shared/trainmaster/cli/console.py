"""`trainmaster console`: the console on this machine, with the caller's own credentials."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import socket
import weakref
import webbrowser
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Final

import typer

from trainmaster.cli.installation import choose_installation, user_name
from trainmaster.cli.output import complain, say
from trainmaster.errors import PermanentError

if TYPE_CHECKING:
    from werkzeug.serving import BaseWSGIServer

LOOPBACK: Final = "127.0.0.1"
_HOST_NAME_BYTES: Final = 8
"""Random bytes of the console's own name below `localhost`."""
REDIRECT: Final = (
    '<!doctype html><meta name="referrer" content="no-referrer"><meta http-equiv="refresh"'
    ' content="0; url={0}"><a href="{0}">Open the console</a>'
)


def console(
    browser: Annotated[bool, typer.Option(help="Open the address in the default browser.")] = True,
    port: Annotated[
        int,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="Port on this machine; 0: any free one."
        ),
    ] = 0,
    own_name: Annotated[
        bool,
        typer.Option(
            help=(
                "Serve under a name that is known to your browser only. Safari does not find it."
                " Without it, your browser hands the session to every server on 127.0.0.1, also to"
                " those of other users of this machine."
            )
        ),
    ] = True,
) -> None:
    """Show jobs, timelines, decisions and logs in a browser, until Ctrl-C.

    The console listens on this machine only and acts with your own credentials. Its address works
    once.
    """
    server, address = start(port, own_name=own_name)
    say(address)
    complain("The console runs until Ctrl-C.")
    served = Thread(target=server.serve_forever, name="console", daemon=True)
    served.start()
    try:
        with redirect_page(address) as page:
            if browser:
                webbrowser.open(page)  # returns at once, or when a browser in the terminal ends
            served.join()
    finally:
        server.shutdown()
        server.server_close()


@contextmanager
def redirect_page(address: str) -> Iterator[str]:
    """Yield the address of a file that leads to the address, and that only this user can read.

    Every user of the machine can read the arguments of a browser's process, and so the token in
    them.
    """
    with NamedTemporaryFile("w", prefix="trainmaster-console-", suffix=".html") as file:
        file.write(REDIRECT.format(address))
        file.flush()
        yield Path(file.name).as_uri()


def serve_stack(environment: Mapping[str, str]) -> str:
    """Serve the console of a local stack until this process ends.

    Return the address, which works once.

    `environment`: the variables that connect clients to the stack. They replace those of this
    process.
    """
    os.environ.update(environment)
    server, address = start(0)
    Thread(target=server.serve_forever, name="console", daemon=True).start()
    return address


def start(port: int, *, own_name: bool = True) -> tuple[BaseWSGIServer, str]:
    """Return a server on loopback, and the address that signs in.

    Raises PermanentError for a port in use.

    `own_name`: serve under a random name below `localhost`, which browsers resolve to loopback
    themselves. Cookies know no ports: under 127.0.0.1, every other server of the machine that the
    browser visits would receive the session.
    """
    choose_installation()
    from werkzeug.serving import make_server

    from trainmaster.console.sign_in import LoopbackSignIn
    from trainmaster.console.web import create_app
    from trainmaster.cost.report import CostSources
    from trainmaster.wiring.console import console as console_of_installation
    from trainmaster.wiring.price_list import price_list
    from trainmaster.wiring.prices import checkpoint_times

    sign_in = LoopbackSignIn(user_name())
    sources = CostSources(price_list, checkpoint_times())
    app = create_app(console_of_installation(version("trainmaster"), cost_sources=sources), sign_in)
    logging.getLogger("werkzeug").setLevel(logging.WARNING)
    try:
        server = make_server(LOOPBACK, port, app, threaded=True)
    except (OSError, SystemExit) as error:  # werkzeug exits where the port is in use
        raise PermanentError(
            f"--port {port}: cannot listen on it ({error}). Leave it out to use a free port"
        ) from None
    if own_name:
        _hold_ipv6(server)
    host = f"{secrets.token_hex(_HOST_NAME_BYTES)}.localhost" if own_name else LOOPBACK
    sign_in.hosts = (f"{host}:{server.server_port}",)
    return server, f"http://{sign_in.hosts[0]}/?token={sign_in.token}"


def _hold_ipv6(server: BaseWSGIServer) -> None:
    """Keep others from listening on ::1 at the server's port.

    For names below `localhost`, browsers try that address first. Nothing listens on the socket, so
    that they connect to 127.0.0.1 next. Raises PermanentError if another program has the port.
    Without IPv6 no program can have it.
    """
    try:
        with socket.socket(socket.AF_INET6) as held:
            held.bind(("::1", server.server_port))
            weakref.finalize(server, os.close, held.detach())
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            server.server_close()
            problem = (
                f"another program listens on [::1]:{server.server_port}, where it could receive"
                " your requests"
            )
            raise PermanentError(
                f"--port {server.server_port}: {problem}. Use another port"
            ) from None
