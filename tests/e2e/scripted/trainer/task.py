"""A trainer without a framework, for tests of everything around it: takes steps, one a line, and ends with 0.

It keeps its progress in its home directory, so that a restart in the same VM goes on and one on another VM begins anew.
`--do SEAT:ACTION@STEP` lets a replica do something before that step, in every incarnation that comes to it.
With `--together` it is as synchronous as training with a framework: a replica waits for its peers at its start, all
take each step together, from where the chief is, and who loses a peer dies of it.
"""

import argparse
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path


def act(action: str) -> None:
    if action == "bug":
        raise ValueError("images of shape (8, 8) expected")
    if action == "import":
        import no_such_module  # noqa: F401
    elif action == "eat":
        eaten = []
        while True:
            eaten.append(bytearray(b"x" * (1 << 24)))
    elif action.startswith("exit="):
        sys.exit(int(action[5:]))
    else:
        os.kill(os.getpid(), signal.Signals[action])
        time.sleep(5)


class Gang:
    """Each replica's connection to the chief, or the chief's to all of them."""

    def __init__(self, config: dict, done: int) -> None:
        self.is_chief = config["task"]["type"] == "chief"
        host, _, port = config["cluster"]["chief"][0].rpartition(":")
        if self.is_chief:
            with socket.create_server((host, int(port))) as server:
                self.peers = [server.accept()[0] for _ in config["cluster"].get("worker", ())]
            self.tell(done.to_bytes(4, "big"))
            self.done = done
        else:
            self.peers = [connected(host, int(port))]
            self.done = int.from_bytes(self.hear(4), "big")

    def meet(self) -> None:
        """Returns when all have called it; what dies meanwhile is a peer that is gone."""
        if self.is_chief:
            self.hear(1)
            self.tell(b".")
        else:
            self.tell(b".")
            self.hear(1)

    def tell(self, word: bytes) -> None:
        for peer in self.peers:
            peer.sendall(word)

    def hear(self, length: int) -> bytes:
        words = [peer.recv(length, socket.MSG_WAITALL) for peer in self.peers]
        if any(len(word) < length for word in words):
            raise ConnectionError("Connection closed by peer")
        return b"".join(words)


def connected(host: str, port: int) -> socket.socket:
    """As soon as the chief is there."""
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
    who, _, what = options.do.partition(":")
    action, _, at_step = what.partition("@")
    progress = Path.home() / "progress"
    done = int(progress.read_text()) if progress.exists() else 0
    print(f"{task['type']} {task['index']} begins after step {done}, job dir {options.job_dir}", flush=True)
    if "MEGASCALE_SLICE_ID" in os.environ:
        seen = [os.environ[name] for name in ("MEGASCALE_SLICE_ID", "MEGASCALE_COORDINATOR_ADDRESS", "MASTER_ADDR")]
        print("slice", *seen, flush=True)
    gang = Gang(config, done) if options.together else None
    for step in range((gang.done if gang else done) + 1, options.steps + 1):
        if who == f"{task['type']}-{task['index']}" and step == int(at_step):
            act(action)
        time.sleep(options.step_seconds)
        if gang:
            gang.meet()
        written = progress.with_suffix(".new")  # it may be killed at any moment, also at this one
        written.write_text(str(step))
        written.replace(progress)
        print(f"step {step}/{options.steps}", flush=True)


if __name__ == "__main__":
    main()
