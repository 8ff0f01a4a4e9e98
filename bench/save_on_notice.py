"""How long after the notice of one VM's end the programs of all members have their signal.

    python -m bench.save_on_notice --members 2 4 16 --notices 100

Each member is a process on loopback with the agent's own channel and choice of the moment, and a program that catches
SIGUSR1. The members get the notice in turn. Each notice is a round of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, Final, cast

from trainmaster.agent.channel.peer_channel import PeerChannel
from trainmaster.agent.control.saving import Saving
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.model.vm_config import ChannelConfig, IncarnationKey
from trainmaster.agent.program.save_request import SaveRequest
from trainmaster.agent.reporting.serial_console import Console

KEY: Final = b"k" * 32
PROGRAM: Final = """
import os, signal, sys, time
signal.signal(signal.SIGUSR1, lambda *_: os.write(1, f"{time.time()}\\n".encode()))
print("up", flush=True)
while True: signal.pause()
"""


def run_member(number: int, members: list[str]) -> None:
    """Be one agent: `ROUND` on standard input begins a round, `notice` announces the end of this VM."""
    inbox, console = Inbox(MetadataServer("127.0.0.1:1")), Console(os.open(os.devnull, os.O_WRONLY))
    state = SimpleNamespace(last_started=None, desired=None, report_notice=lambda *_: None)
    config = SimpleNamespace(saves_together=True, save_on_notice="gang", job_id="bench")
    identity = cast("Any", SimpleNamespace(config=config, index=number))
    channel = PeerChannel(ChannelConfig(KEY, 0, members), identity, inbox, console, lambda: state.last_started)
    inbox.start_thread(channel.run)
    with tempfile.TemporaryDirectory() as folder:
        request = SaveRequest(Path(folder), str(os.getpid()), signal.SIGUSR1)
        request.reset()
        program = subprocess.Popen([sys.executable, "-c", PROGRAM], env=request.variables(in_container=False))

        def ask() -> str:
            request.create_file()
            return str(request.signal_catchers(program.pid))

        def prepare() -> None:
            request.find_catchers(program.pid)

        launcher = cast("Any", SimpleNamespace(is_running=True, request_save=ask, prepare_save=prepare))
        saving = Saving(cast("Any", config), inbox, console, launcher, cast("Any", state), channel, enter=lambda: None)

        def obey(word: str) -> None:
            if word == "notice":
                saving.request(cast("Any", program), 25.0)
            else:
                state.last_started = IncarnationKey(1, int(word))

        def read() -> None:
            for line in sys.stdin:
                inbox.post(obey, line.strip())
            program.kill()
            os._exit(0)

        threading.Thread(target=read, daemon=True).start()
        while True:
            inbox.handle_next()


def measure(count: int, notices: int) -> list[float]:
    """Return the seconds from each notice to the signal of the last member."""
    sockets = [socket.socket(type=socket.SOCK_DGRAM) for _ in range(count)]
    for own in sockets:
        own.bind(("127.0.0.1", 0))
    members = [f"127.0.0.1:{own.getsockname()[1]}" for own in sockets]
    for own in sockets:
        own.close()
    command = [sys.executable, "-m", "bench.save_on_notice", "--be", json.dumps(members)]
    agents = [
        subprocess.Popen([*command, str(number)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for number in range(count)
    ]
    pipes = [(cast("IO[str]", agent.stdin), cast("IO[str]", agent.stdout)) for agent in agents]
    for _, output in pipes:
        output.readline()  # the program is up
    times = []
    for number in range(1, notices + 1):
        for pipe, _ in pipes:
            print(number, file=pipe, flush=True)
        time.sleep(0.2)
        began = time.time()
        print("notice", file=pipes[number % count][0], flush=True)
        times.append(max(float(output.readline()) for _, output in pipes) - began)
    for agent in agents:
        agent.communicate()
    return sorted(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--members", type=int, nargs="+", default=[2, 4, 16])
    parser.add_argument("--notices", type=int, default=100)
    parser.add_argument("--be", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.be:
        run_member(int(options.be[1]), json.loads(options.be[0]))
    for count in options.members:
        times = measure(count, options.notices)
        p99 = times[min(len(times) - 1, round(0.99 * len(times)))]
        load = os.getloadavg()[0]
        figures = f"median {statistics.median(times):.3f} s, p99 {p99:.3f} s, longest {times[-1]:.3f} s"
        sys.stdout.write(f"N = {count}: {figures} ({len(times)} notices, load {load:.1f})\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
