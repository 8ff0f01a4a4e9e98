"""Stands in for `docker` on a VM's PATH: the calls the agent makes, with images that are Python sources.

Copied to BIN/docker; everything it knows is beside it, in BIN/engine: `images/` (what can be pulled), `pulled`,
`containers/`, `refusals` (what the next pulls say), `calls` (argv of each call, and the credentials it was shown). As
with the real one, a container is not a child of whoever ran it, and incarnations on when that is killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NoReturn
from urllib.parse import quote

ENGINE = Path(__file__).resolve().parent / "engine"
VALUED = ("--name", "--label", "--network", "--ipc", "--log-driver", "--env", "--env-file", "--mount", "--entrypoint")
NEVER = "0001-01-01T00:00:00Z"
# Commands that the engine's init cannot run, and how that ends: of docker, of podman.
INITS = {
    "what-tini-cannot-find": ("[FATAL tini (7)] exec what-tini-cannot-find failed: No such file or directory", 127),
    "what-catatonit-cannot-find": ("ERROR (catatonit:6): failed to exec pid1: No such file or directory", 1),
    "what-catatonit-cannot-run": ("ERROR (catatonit:6): failed to exec pid1: Permission denied", 1),
}


def main(argv: list[str]) -> None:
    config = None
    if argv[0] == "--config":
        config, argv = argv[1], argv[2:]
    note = {
        "argv": argv,
        "host": os.environ.get("DOCKER_HOST"),
        "config": config and json.loads((Path(config) / "config.json").read_text()),
    }
    with (ENGINE / "calls").open("a") as calls:
        calls.write(json.dumps(note) + "\n")
    match argv:
        case ["image", "inspect", *_, image]:
            if not (ENGINE / "pulled" / quote(image, "")).exists():
                fail(1, f"Error response from daemon: No such image: {image}")
        case ["pull", image]:
            pull(image)
        case ["run", *words]:
            run(words)
        case ["container", "inspect", *_, name]:
            inspect(name)
        case ["ps", "--all", "--quiet", "--filter", condition]:
            label = condition.removeprefix("label=")
            print("\n".join(each.name for each in containers() if label in state_of(each.name)["labels"]))
        case ["rm", "--force", "--volumes", *names]:
            for name in names:
                remove(name)
        case _:
            fail(125, f"unknown call {argv}")


def fail(status: int, text: str) -> NoReturn:
    print(text, file=sys.stderr)
    sys.exit(status)


def pull(image: str) -> None:
    refusals = (ENGINE / "refusals").read_text().splitlines()
    if refusals:
        (ENGINE / "refusals").write_text("\n".join(refusals[1:]))
        fail(1, f"Error response from daemon: {refusals[0]}")
    if not (ENGINE / "images" / quote(image, "")).exists():
        fail(1, f"Error response from daemon: manifest for {image} not found: manifest unknown")
    print(f"Status: Downloaded newer image for {image}")
    (ENGINE / "pulled" / quote(image, "")).touch()


def run(words: list[str]) -> None:
    options: dict[str, list[str]] = {}
    while words[0].startswith("--"):
        option = words.pop(0)
        options.setdefault(option, []).append(words.pop(0) if option in VALUED else "")
    image, *arguments = words
    name = options["--name"][0]
    env = environment(options)
    if (ENGINE / "broken").exists():
        fail(125, "docker: Error response from daemon: could not select device driver")
    write(name, {"labels": options["--label"], "pid": 0, "exit": 127, "started": NEVER, "oom": False})
    command = [sys.executable, str(ENGINE / "images" / quote(image, "")), *options.get("--entrypoint", []), *arguments]
    if options.get("--entrypoint") == ["nothing"]:
        fail(127, 'docker: Error response from daemon: exec: "nothing": executable file not found in $PATH')
    for entrypoint, (said, status) in INITS.items():
        if options.get("--entrypoint") == [entrypoint]:
            source = f"import sys; print({said!r}, file=sys.stderr); exit({status})"
            command = [sys.executable, "-c", source]
    child = subprocess.Popen(command, env=env, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    pumps = [
        threading.Thread(target=forward, args=pair, daemon=True) for pair in ((child.stdout, 1), (child.stderr, 2))
    ]
    for pump in pumps:
        pump.start()
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ")
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, _: child.send_signal(number))
    write(name, {"labels": options["--label"], "pid": child.pid, "exit": 0, "started": started, "oom": False})
    status = child.wait()
    for pump in pumps:
        pump.join()
    status = status if status >= 0 else 128 - status
    oom = (ENGINE / "out-of-memory").exists()
    write(name, {"labels": options["--label"], "pid": 0, "exit": status, "started": started, "oom": oom})
    sys.exit(status)


def environment(options: dict[str, list[str]]) -> dict[str, str]:
    env = {each: os.environ[each] for each in options.get("--env", []) if each in os.environ}
    for file in options.get("--env-file", []):
        for line in Path(file).read_text().splitlines():
            variable, _, value = line.partition("=")
            env[variable] = value
    for mount in options.get("--mount", []):  # the fake's containers have the machine's files
        parts = dict(part.split("=") for part in mount.split(","))
        env = {each: value.replace(parts["target"], parts["source"]) for each, value in env.items()}
    return env


def forward(stream: IO[bytes], to: int) -> None:
    """The container's own pipes: whoever ran it does not hold them open."""
    while data := os.read(stream.fileno(), 1 << 16):
        os.write(to, data)


def inspect(name: str) -> None:
    if not (ENGINE / "containers" / name).exists():
        fail(1, f"Error response from daemon: No such container: {name}")
    state = state_of(name)
    status = "created" if state["started"] == NEVER else "running" if state["pid"] else "exited"
    told = {"Status": status, "ExitCode": state["exit"], "OOMKilled": state["oom"], "StartedAt": state["started"]}
    print(json.dumps(told))


def remove(name: str) -> None:
    file = ENGINE / "containers" / name
    if file.exists():
        if state_of(name)["pid"]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(state_of(name)["pid"], signal.SIGKILL)
        file.unlink()


def containers() -> Sequence[Path]:
    return sorted((ENGINE / "containers").iterdir())


def state_of(name: str) -> Any:
    return json.loads((ENGINE / "containers" / name).read_text())


def write(name: str, state: dict[str, Any]) -> None:
    new = ENGINE / f"{name}.new"
    new.write_text(json.dumps(state))
    new.replace(ENGINE / "containers" / name)


if __name__ == "__main__":
    main(sys.argv[1:])
