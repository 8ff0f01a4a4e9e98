"""A fake `docker` command for a VM's PATH. It knows the calls that the agent makes; its images are
Python sources.

BIN/docker imports it, and it keeps its state in BIN/engine: `images/` (what can be pulled),
`pulled/`, `containers/`, `pull-errors` (messages of the next pulls), `calls` (argv and credentials
of each call). As with the real engine, a container is not a child process of the command that ran
it, and it continues when that command is killed.

Hundreds of commands import it, so it imports little, and neither pathlib nor contextlib.
"""

# ruff: noqa: PTH105, PTH108, PTH110, PTH120, PTH123, PTH208, SIM105

from __future__ import annotations

import json
import os
import re
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO, Any, NoReturn

ENGINE = f"{os.path.dirname(os.path.realpath(sys.argv[0]))}/engine"
VALUED = (
    "--name",
    "--label",
    "--network",
    "--shm-size",
    "--stop-signal",
    "--stop-timeout",
    "--log-driver",
    "--env",
    "--env-file",
    "--mount",
    "--entrypoint",
)
NEVER = "0001-01-01T00:00:00Z"
# Commands that the engine's init cannot run: its message and its exit status. First docker's init,
# then podman's.
INITS = {
    "what-tini-cannot-find": (
        "[FATAL tini (7)] exec what-tini-cannot-find failed: No such file or directory",
        127,
    ),
    "what-catatonit-cannot-find": (
        "ERROR (catatonit:6): failed to exec pid1: No such file or directory",
        1,
    ),
    "what-catatonit-cannot-run": ("ERROR (catatonit:6): failed to exec pid1: Permission denied", 1),
}


def main(argv: list[str]) -> None:
    """Record the call, and do what its words name."""
    config = None
    if argv[0] == "--config":
        config, argv = argv[1], argv[2:]
    record = {
        "argv": argv,
        "host": os.environ.get("DOCKER_HOST"),
        "config": config and json.loads(read(f"{config}/config.json")),
    }
    with open(f"{ENGINE}/calls", "a") as calls:
        calls.write(json.dumps(record) + "\n")
    match argv:
        case ["image", "inspect", *_, image]:
            if not os.path.exists(f"{ENGINE}/pulled/{file_name(image)}"):
                fail(1, f"Error response from daemon: No such image: {image}")
        case ["pull", image]:
            pull(image)
        case ["run", *words]:
            run(words)
        case ["container", "inspect", *_, name]:
            inspect(name)
        case ["ps", "--all", "--quiet", "--filter", condition]:
            label = condition.removeprefix("label=")
            print(
                "\n".join(
                    name
                    for name in sorted(os.listdir(f"{ENGINE}/containers"))
                    if label in state_of(name)["labels"]
                )
            )
        case ["rm", "--force", "--volumes", *names]:
            for name in names:
                remove(name)
        case _:
            fail(125, f"unknown call {argv}")


def fail(status: int, text: str) -> NoReturn:
    """End the command with this exit status and this text on standard error."""
    print(text, file=sys.stderr)
    sys.exit(status)


def pull(image: str) -> None:
    """Copy an image into the engine, unless the test has stored an error for that."""
    errors = read(f"{ENGINE}/pull-errors").splitlines()
    if errors:
        write(f"{ENGINE}/pull-errors", "\n".join(errors[1:]))
        fail(1, f"Error response from daemon: {errors[0]}")
    if not os.path.exists(f"{ENGINE}/images/{file_name(image)}"):
        fail(1, f"Error response from daemon: manifest for {image} not found: manifest unknown")
    print(f"Status: Downloaded newer image for {image}")
    write(f"{ENGINE}/pulled/{file_name(image)}", text="")


def run(words: list[str]) -> None:
    """Run a container until it ends. Its exit status is that of this command."""
    import signal
    import subprocess
    import threading

    options: dict[str, list[str]] = {}
    while words[0].startswith("--"):
        option = words.pop(0)
        options.setdefault(option, []).append(words.pop(0) if option in VALUED else "")
    image, *arguments = words
    name = options["--name"][0]
    env = environment(options)
    if os.path.exists(f"{ENGINE}/broken"):
        fail(125, "docker: Error response from daemon: could not select device driver")
    store(
        name, {"labels": options["--label"], "pid": 0, "exit": 127, "started": NEVER, "oom": False}
    )
    command = [
        sys.executable,
        f"{ENGINE}/images/{file_name(image)}",
        *options.get("--entrypoint", []),
        *arguments,
    ]
    if options.get("--entrypoint") == ["nothing"]:
        fail(
            127,
            'docker: Error response from daemon: exec: "nothing": executable file not found in'
            " $PATH",
        )
    for entrypoint, (message, status) in INITS.items():
        if options.get("--entrypoint") == [entrypoint]:
            source = f"import sys; print({message!r}, file=sys.stderr); exit({status})"
            command = [sys.executable, "-c", source]
    child = subprocess.Popen(
        command, env=env, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    pumps = [
        threading.Thread(target=forward, args=pair, daemon=True)
        for pair in ((child.stdout, 1), (child.stderr, 2))
    ]
    for pump in pumps:
        pump.start()
    started = time.strftime("%Y-%m-%dT%H:%M:%SZ")
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, lambda number, _: child.send_signal(number))
    store(
        name,
        {
            "labels": options["--label"],
            "pid": child.pid,
            "exit": 0,
            "started": started,
            "oom": False,
        },
    )
    status = child.wait()
    for pump in pumps:
        pump.join()
    status = status if status >= 0 else 128 - status  # as a shell reports signals
    oom = os.path.exists(f"{ENGINE}/out-of-memory")
    store(
        name,
        {"labels": options["--label"], "pid": 0, "exit": status, "started": started, "oom": oom},
    )
    sys.exit(status)


def environment(options: dict[str, list[str]]) -> dict[str, str]:
    """Return the environment variables of a container that is run with these options."""
    env = {name: os.environ[name] for name in options.get("--env", []) if name in os.environ}
    for file in options.get("--env-file", []):
        for line in read(file).splitlines():
            variable, _, value = line.partition("=")
            env[variable] = value
    for mount in options.get("--mount", []):  # these containers see the machine's files
        parts = dict(part.partition("=")[::2] for part in mount.split(","))
        inside = re.compile(rf"{re.escape(parts['target'])}(?=/|$)")
        env = {
            name: inside.sub(parts["source"], value, 1) if inside.match(value) else value
            for name, value in env.items()
        }
    return env


def forward(stream: IO[bytes], to: int) -> None:
    """Copy the container's own pipes, so that the command that ran it does not hold them open."""
    while data := os.read(stream.fileno(), 1 << 16):
        os.write(to, data)


def inspect(name: str) -> None:
    """Print the state of a container in JSON, as the engine does."""
    if not os.path.exists(f"{ENGINE}/containers/{name}"):
        fail(1, f"Error response from daemon: No such container: {name}")
    state = state_of(name)
    if state["started"] == NEVER:
        status = "created"
    elif state["pid"]:
        status = "running"
    else:
        status = "exited"
    answer = {
        "Status": status,
        "ExitCode": state["exit"],
        "OOMKilled": state["oom"],
        "StartedAt": state["started"],
    }
    print(json.dumps(answer))


def remove(name: str) -> None:
    """Kill a container and remove it; nothing happens if there is none."""
    file = f"{ENGINE}/containers/{name}"
    if os.path.exists(file):
        if pid := state_of(name)["pid"]:
            try:
                os.kill(pid, 9)
            except ProcessLookupError:
                pass
        os.unlink(file)


def file_name(image: str) -> str:
    """Return the name of the file that stands for an image."""
    return image.replace("/", "%")


def state_of(name: str) -> Any:
    return json.loads(read(f"{ENGINE}/containers/{name}"))


def store(name: str, state: dict[str, Any]) -> None:
    write(f"{ENGINE}/{name}.new", json.dumps(state))
    os.replace(f"{ENGINE}/{name}.new", f"{ENGINE}/containers/{name}")


def read(path: str) -> str:
    with open(path) as file:
        return file.read()


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
