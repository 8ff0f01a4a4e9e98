"""A trainer without a framework for tests: it takes steps, prints a line for each, and exits with
status 0.

Its progress is in its home directory: a restart in the same VM continues, a restart on another VM
begins with step 1. `--do REPLICA:ACTION@STEP` makes a replica act (see `act`) before a step,
whenever it reaches the step. A file `finish` in its home directory makes it exit with status 0
after the current step. `--together` makes it as synchronous as training with a framework: a replica
waits for its peers at the start, all take each step together, beginning with the chief's step, and
a replica that loses a peer fails.
"""

import argparse
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

EATEN_BYTES = 16 * 1024 * 1024  # a step of the memory that "eat" uses
DONE_BYTES = 4  # the number of steps that are done, as the chief sends it


def act(action: str) -> None:
    """Fail, end or hang as this action says.

    "bug": raise an error of the program's own code; "import": import a missing module; "eat": use
    memory without end; "exit=N": exit with status N; "hang", "stop": see `load`; the name of
    a signal: die of it.
    """
    if action == "bug":
        raise ValueError("images of shape (8, 8) expected")
    if action == "import":
        import no_such_module  # noqa: F401
    elif action == "eat":
        eaten = []
        while True:
            eaten.append(bytearray(b"x" * EATEN_BYTES))
    elif action.startswith("exit="):
        sys.exit(int(action.removeprefix("exit=")))
    elif action in ("hang", "stop"):  # once on each VM
        if not (Path.home() / "hung").exists():
            (Path.home() / "hung").touch()
            load(action)
    else:
        os.kill(os.getpid(), signal.Signals[action])
        time.sleep(5)


def load(action: str) -> None:
    """Hang, as if a batch never came. "stop": have the kernel stop the process, too."""
    if action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(1e6)


class Peers:
    """A replica's connection to the chief, or the chief's connections to all other replicas."""

    def __init__(self, config: dict, done: int) -> None:
        """Connect to all of them. All then go on after the step that the chief has done."""
        self.is_chief = config["task"]["type"] == "chief"
        host, _, port = config["cluster"]["chief"][0].rpartition(":")
        if self.is_chief:
            with socket.create_server((host, int(port))) as server:
                self.peers = [server.accept()[0] for _ in config["cluster"].get("worker", ())]
            self.send(done.to_bytes(DONE_BYTES, "big"))
            self.done = done
        else:
            self.peers = [connect(host, int(port))]
            self.done = int.from_bytes(self.receive(DONE_BYTES), "big")

    def meet(self) -> None:
        """Wait until all replicas have called this method.

        Raises ConnectionError if a peer is lost.
        """
        if self.is_chief:
            self.receive(1)
            self.send(b".")
        else:
            self.send(b".")
            self.receive(1)

    def send(self, message: bytes) -> None:
        for peer in self.peers:
            peer.sendall(message)

    def receive(self, length: int) -> bytes:
        """Return the messages of all peers, of `length` bytes each, one after the other.

        Raises ConnectionError if a peer is lost.
        """
        messages = [peer.recv(length, socket.MSG_WAITALL) for peer in self.peers]
        if any(len(message) < length for message in messages):
            raise ConnectionError("Connection closed by peer")
        return b"".join(messages)


def connect(host: str, port: int) -> socket.socket:
    """Connect to the chief, as soon as it accepts connections."""
    while True:
        try:
            return socket.create_connection((host, port))
        except OSError:
            time.sleep(0.1)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--step-seconds", type=float, default=0.1)
    parser.add_argument("--do", default="")
    parser.add_argument("--together", action="store_true")
    parser.add_argument("--job-dir", default="")
    options = parser.parse_args()
    config = json.loads(os.environ["TF_CONFIG"])
    task = config["task"]
    replica, _, action_at_step = options.do.partition(":")
    action, _, at_step = action_at_step.partition("@")
    progress = Path.home() / "progress"
    done = int(progress.read_text()) if progress.exists() else 0
    print(
        f"{task['type']} {task['index']} begins after step {done}, job dir {options.job_dir}",
        flush=True,
    )
    if "MEGASCALE_SLICE_ID" in os.environ:
        values = [
            os.environ[name]
            for name in ("MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS", "MASTER_ADDR")
        ]
        print("slice", *values, flush=True)
    peers = Peers(config, done) if options.together else None
    for step in range((peers.done if peers else done) + 1, options.steps + 1):
        if replica == f"{task['type']}-{task['index']}" and step == int(at_step):
            act(action)
        time.sleep(options.step_seconds)
        if peers:
            peers.meet()
        written = progress.with_suffix(".new")  # atomic, because the program may be killed here
        written.write_text(str(step))
        written.replace(progress)
        print(f"step {step}/{options.steps}", flush=True)
        if (Path.home() / "finish").exists():
            break


if __name__ == "__main__":
    main()
