"""The agent's decisions on a written history: one VM with fakes of setup, program, Pub/Sub and
metadata server.

A history is a list of events in words, such as `RUN`. An event of the control plane is a directive:
to run an incarnation (one start of the program), to hold it until all members of the gang are
ready, or to stop it. "The next" is the next incarnation; "what was held" runs after a hold.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.integration.agent.support.vm import agent_identity
from trainmaster.agent.channel.datagrams import Datagram
from trainmaster.agent.channel.peer_channel import PeerChannel
from trainmaster.agent.control.agent import Agent
from trainmaster.agent.control.agent_states import AgentState
from trainmaster.agent.control.launcher import Launcher
from trainmaster.agent.control.run_state import RunState
from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.model.results import ProgramExit, SetupFailure
from trainmaster.agent.model.vm_config import ACTIONS, IncarnationKey
from trainmaster.agent.reporting.events import EventReporter
from trainmaster.agent.reporting.serial_console import Console, Stream
from trainmaster.agent.setup.setup import Setup
from trainmaster.agent.shutdown.vm_shutdown_notice import NOTICE_S

RUN, RUN_AFTER_PAUSE, RUN_HELD, HOLD = (
    "run the next",
    "run the next after a pause",
    "run what was held",
    "hold",
)
HOLD_NEXT, STOP, ACCEPTED = (
    "hold the next",
    "stop",
    "Pub/Sub accepts the latest vm-ready under hold",
)
SET_UP, SETUP_FAILS, SETUP_START_FAILS = "setup ends", "setup fails", "setup ends, start fails"
TIMER, START_FAILS = "a timer fires", "run what was held, start fails"
DIES = "the program dies, which its thread has not noticed yet"
PROGRAM_ENDS, PREEMPTED, SHUTDOWN = "the program ends", "the VM is preempted", "the VM shuts down"
MAINTENANCE, CANCELLED = "maintenance is announced", "maintenance is cancelled"
PEER_ASKS = "a peer asks to save"
GANG: dict[str, Any] = {
    "save_on_notice": "gang",
    "channel": {"key": "00", "first": 0, "members": [["a:1", "b:1"]]},
}
ORDERS = {
    RUN: "run",
    RUN_AFTER_PAUSE: "run",
    RUN_HELD: "run",
    START_FAILS: "run",
    HOLD: "hold",
    HOLD_NEXT: "hold",
    STOP: "stop",
}
"""Events of the control plane → the action of their directive."""
NEXT = (RUN, RUN_AFTER_PAUSE, HOLD_NEXT)
"""Directives to another incarnation than the latest one."""
PROGRAM_EVENTS = (SET_UP, SETUP_FAILS, SETUP_START_FAILS, DIES, PROGRAM_ENDS, ACCEPTED)
DIRECTIVE = "instance/attributes/trainmaster-directive"
EVENTS = (
    RUN,
    RUN_AFTER_PAUSE,
    RUN_HELD,
    HOLD,
    HOLD_NEXT,
    STOP,
    SET_UP,
    SETUP_FAILS,
    SETUP_START_FAILS,
    TIMER,
    START_FAILS,
    DIES,
    PROGRAM_ENDS,
    PREEMPTED,
    SHUTDOWN,
    MAINTENANCE,
    CANCELLED,
    ACCEPTED,
)


class EndOfHistoryError(Exception):
    """All events of the history have happened, and the agent waits for another one."""


class ScriptedInbox(Inbox):
    """Lets the next event of the history happen instead of waiting for one."""

    def __init__(self, happen_next: Callable[[], None]) -> None:
        super().__init__(MetadataServer("127.0.0.1:1"))
        self._happen_next = happen_next
        self.watchers: dict[str, Callable[[str], None]] = {}
        self.threads: list[Callable[[], None]] = []
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.shut_down: Callable[[], None] = lambda: None

    def watch(
        self, path: str, handler: Callable[[str], None], *, is_optional: bool = False
    ) -> None:
        self.watchers[path] = handler

    def on_shutdown(self, handler: Callable[[], None]) -> None:
        self.shut_down = handler

    def start_thread(self, work: Callable[[], None]) -> None:
        self.threads.append(work)

    def post_later(self, delay_s: float, handler: Callable[[], None]) -> None:
        self.timers.append((delay_s, handler))

    def handle_next(self) -> None:
        if self.is_empty:
            self._happen_next()
        else:
            super().handle_next()


class RecordingReporter(EventReporter):
    """Records events instead of publishing them."""

    def __init__(self, vm: ScriptedVm) -> None:
        self._vm, self._facts = vm, vm.facts
        self._clock = vm.inbox.clock
        self.acceptances: list[Callable[[], None]] = []

    def start(self) -> None:
        pass

    def report_ready(
        self,
        key: IncarnationKey,
        accepted: Callable[[], None] = lambda: None,
        *,
        ended: Mapping[str, object] | None = None,
        is_held: bool = False,
        left_peers: bool = False,
    ) -> None:
        assert not self._vm.is_alive, "a program of an earlier incarnation runs"
        if is_held:
            self.acceptances = [accepted]
        words = _words(ended) + (", left peers" if left_peers else "")
        self._facts.append(f"{'held' if is_held else 'ready'} {key.incarnation}{words}")

    def stop_repeating(self) -> None:
        self._facts.append("quiet")

    def report_exit(
        self, key: IncarnationKey, details: Mapping[str, object], accepted: Callable[[], None]
    ) -> None:
        ended = cast("Mapping[str, object] | None", details.get("ended"))
        self._facts.append(f"{details['cause']} {key.incarnation}{_words(ended)}")

    def report_notice(
        self, key: IncarnationKey, gives_up_s: float, number: int, unanswered: Sequence[int]
    ) -> None:
        self._facts.append(f"notice {key.incarnation}")

    def report_maintenance(
        self, key: IncarnationKey, cause: str, accepted: Callable[[], None]
    ) -> None:
        self._facts.append(f"{cause} {key.incarnation}")

    def drop_before(self, key: IncarnationKey) -> None:
        pass

    def flush(self, timeout: float) -> None:
        self._facts.append("flushed")


def _words(ended: Mapping[str, object] | None) -> str:
    """Return how an earlier program ended."""
    return f", {ended['cause']} {ended['incarnation']}" if ended else ""


class RecordingConsole(Console):
    def __init__(self) -> None:
        super().__init__(-1)
        self.lines: list[str] = []

    def log(self, text: str, stream: Stream = Stream.AGENT) -> None:
        self.lines.append(text)


class RecordingAgent(Agent):
    """Records the edges that it takes."""

    edges: set[tuple[AgentState, AgentState]]

    def _move(self, target: AgentState) -> None:
        self.edges.add((self._state, target))
        super()._move(target)


class ScriptedVm:
    """The VM around one agent. It is the agent's setup, its launcher and its program, too."""

    command = ()

    # This path cannot be written, which the agent must survive; a real file would be slow here.
    def __init__(self, disk: Path = Path("no-such-folder/state"), *, is_gang: bool = False) -> None:
        self._is_gang = is_gang
        self._ask_to_save: Callable[[Datagram], None] = lambda _: None
        self.facts: list[str] = []
        """What the agent did, in order."""
        self.ends: dict[int, str] = {}
        """Why the program of each incarnation ended: `own`, `directive` or `crash` of the agent."""
        self._disk = disk
        self._history: list[str] = []
        self._event = ""
        self.incarnation = 0
        self.action = ""
        self.withdrawn: set[int] = set()
        """Incarnations that a directive held or stopped."""
        self._directive = ""
        self.is_ending = False
        self.left_peers = False
        """Whether the program is a launcher whose ranks have exited 0."""
        self._boot()

    def _boot(self) -> None:
        """Start an agent, with whatever the disk says."""
        self.console = RecordingConsole()
        self.inbox = ScriptedInbox(self._happen_next)
        self._running: IncarnationKey | None = None
        self._is_dead = False
        self.reporter = RecordingReporter(self)
        run_state = RunState(self._disk, "1", self.reporter, self.console)
        self.agent = RecordingAgent(
            identity=agent_identity(**GANG) if self._is_gang else agent_identity(),
            inbox=self.inbox,
            reporter=self.reporter,
            run_state=run_state,
            setup=cast("Setup", self),
            launcher=cast("Launcher", self),
            console=self.console,
            notice_s=NOTICE_S,
            channel=cast("PeerChannel", self) if self._is_gang else None,
        )
        self.agent.edges = set()

    def run(self, *history: str) -> ScriptedVm:
        """Run the agent through these events.

        An event that cannot happen at its turn is left out.
        """
        self._history = list(history)
        try:
            self.agent.run()
        except EndOfHistoryError:
            return self
        self.facts.append("agent exits")
        return self

    def crash(self) -> ScriptedVm:
        """Let the agent die. The next one kills the program, and reads the directive first."""
        if self.is_alive and self._running is not None:
            self.ends.setdefault(self._running.incarnation, "crash")
        self._boot()
        if self._directive:
            self.inbox.post(lambda: self.inbox.watchers[DIRECTIVE](self._directive))
        return self

    def _happen_next(self) -> None:
        if not self._history:
            raise EndOfHistoryError
        event = self._event = self._history.pop(0)
        watchers, timers = self.inbox.watchers, self.inbox.timers
        if event in ORDERS:
            self._direct(event)
        elif event in PROGRAM_EVENTS:
            self._happen_to_program(event)
        elif event == TIMER and timers:
            _, handler = timers.pop(0)
            handler()
        elif event in (MAINTENANCE, CANCELLED):
            window = datetime.now(UTC) + timedelta(seconds=3000)
            text = (
                "NONE"
                if event == CANCELLED
                else json.dumps({"window_start_time": f"{window:%Y-%m-%dT%H:%M:%S}Z"})
            )
            watchers["instance/upcoming-maintenance?alt=json"](text)
        elif event == PEER_ASKS and self._running:
            self._ask_to_save(
                Datagram(
                    self._running,
                    sender=0,
                    kind="save",
                    serial=1,
                    seconds={"in": 0.1, "gives_up": 1e3},
                    number=1,
                )
            )
        elif event == PREEMPTED:
            watchers["instance/preempted"]("TRUE")
        elif event == SHUTDOWN:
            self.inbox.shut_down()
            if self._history:
                # An agent that has finished still handles what came at the same time.
                self._happen_next()

    def _happen_to_program(self, event: str) -> None:
        threads = self.inbox.threads
        is_setup = event in (SET_UP, SETUP_FAILS, SETUP_START_FAILS)
        if (is_setup and threads and self._running is None) or (
            event == PROGRAM_ENDS and self._running
        ):
            threads.pop()()
        elif event == DIES and self.is_alive:
            self._die()
        elif event == ACCEPTED and self.reporter.acceptances:
            self.reporter.acceptances.pop()()

    def _direct(self, event: str) -> None:
        """Write a directive. A writer that is late writes an older one, which changes nothing."""
        is_next = event in NEXT
        self.incarnation += is_next
        if not self.incarnation:
            return
        action = ORDERS[event]
        directive = json.dumps(
            {
                "attempt": 1,
                "incarnation": self.incarnation,
                "action": action,
                "pause_s": 1e9 if event == RUN_AFTER_PAUSE else 0,
            }
        )
        if is_next or ACTIONS.index(action) >= ACTIONS.index(self.action):
            self.action = action
            if action != "run":
                self.withdrawn.add(self.incarnation)
            self._directive = directive
        self.inbox.watchers[DIRECTIVE](directive)

    def _die(self) -> None:
        self._is_dead = True
        if self._running is not None:
            self.ends.setdefault(self._running.incarnation, "own")

    # The setup, the launcher and the program, as the agent calls them.

    def clean_up(self) -> None:
        pass

    def await_end(self) -> None:
        assert not self.is_alive

    preflight = SimpleNamespace(finding="")

    def prepare(self, *, is_installed: bool) -> Mapping[str, str] | SetupFailure:
        if self._event == SETUP_FAILS:
            return SetupFailure("setup", 1, {"type": "", "message": "", "frame": ""}, tail="")
        return {}

    def start(
        self,
        key: IncarnationKey,
        secrets: Mapping[str, str],
        slices: Sequence[str],
        without: Sequence[int],
    ) -> ScriptedVm:
        if self._event in (SETUP_START_FAILS, START_FAILS):
            raise OSError("argument list too long")
        assert self._running is None, "two programs run at the same time"
        self._running = key
        self._is_dead = False
        self.is_ending = False
        self.facts.append(f"start {key.incarnation}")
        return self

    def wait(self, key: IncarnationKey, program: ScriptedVm) -> ProgramExit:
        self._die()
        self._running = None
        return ProgramExit(1)

    @property
    def is_alive(self) -> bool:
        return self._running is not None and not self._is_dead

    def has_left_peers(self) -> bool:
        return self.left_peers

    # The peer channel.

    def on(self, kind: str, handler: Callable[[Datagram], None]) -> None:
        if kind == "save":
            self._ask_to_save = handler

    def ask(
        self,
        kind: str,
        key: IncarnationKey,
        seconds: object,
        until_s: float,
        done: Callable[[Sequence[int]], None],
        number: int,
    ) -> None:
        self.facts.append(f"asks for {key.incarnation}")

    def notify(self, number: int) -> None:
        self.facts.append("save")

    def show_notice(self) -> None:
        pass

    def prepare_save(self) -> None:
        pass

    def request_save(self) -> str:
        self.facts.append("save together")
        return "done"

    @property
    def is_running(self) -> bool:
        return self._running is not None

    def end(self, grace_s: float) -> None:
        self.facts.append("end")
        self.is_ending = True
        if self.is_alive and self._running is not None:
            is_shutdown = self.agent.edges & {
                (state, AgentState.SHUTTING_DOWN) for state in AgentState
            }
            self.ends.setdefault(self._running.incarnation, "own" if is_shutdown else "directive")

    def cancel(self) -> None:
        pass
