"""When the program is asked to save: because this VM is about to stop, or the VM of any member of a
synchronous job.

To ask is to create the file that programs may look for, and to send the job's checkpoint signal.

The members train together, so their checkpoints are of use only together. The agents agree over
their peer channel, by datagrams from VM to VM. Where these do not arrive, directives in the VMs'
metadata order the same, seconds later.

    notice ──► the next number, unless the last request is younger than AGAIN_S
                 └──► a moment MOMENT_S ahead
                        ├──► `save` to the peers, until they answer
                        │      └──► notice message; peers that did not answer get a directive
                        └──► at the moment: file and signal, on every member

Requests of a round, one common run of the members, are numbered, whether an agent or a directive
makes them. A program is asked once for each number, and for none that is lower than the last one.

A program that ends afterwards ends the round. The others may finish their save: the agent does not
end its program for the directive that holds the next round before `patience_s` is over.
docs/decisions/0136-save-together.md.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

from trainmaster.agent.channel.datagrams import Datagram
from trainmaster.agent.channel.peer_channel import PeerChannel
from trainmaster.agent.control.launcher import Launcher
from trainmaster.agent.control.run_state import RunState
from trainmaster.agent.model.inbox import Inbox
from trainmaster.agent.model.vm_config import IncarnationKey, ReceivedDirective, VmConfig
from trainmaster.agent.program.program import Program
from trainmaster.agent.reporting.serial_console import Console

KIND = "save"  # name of the datagrams
# Names of the times in a datagram: seconds until the moment, and until the VM is given up
IN = "in"
GIVES_UP = "gives_up"
# Times in seconds of the monotonic clock
MOMENT_S = 0.5
"""How far ahead the moment is. Measured: datagrams reach 16 members within 51 ms (p99)."""
TIMER_SKEW_S = 0.2
"""How late a timer may be."""
ASK_S = 2.0
"""How long peers are asked. A directive orders it for the others."""
AGAIN_S = 600.0
"""A notice that comes later than this after a request is another request: the first notice may have
been withdrawn.
"""
FINISH_S = 600.0
"""Time for a save, from the request or from the end of the round."""
LATE_S = 60.0
"""Time after a VM should have been given up for which the notice still explains an exit."""
CATCH_AGAIN_S = 30.0
"""Time after which the agent checks again whether the program catches the signal."""
AHEAD_MAX_S = 3600.0
"""Longest time until a VM is given up that a peer may name: the longest notice."""


class Saving:
    """The requests to save, of one incarnation (execution of the program) after the other.

    `agent.py` calls it, on the main thread only. The key of a round's incarnation names the round.
    """

    def __init__(
        self,
        config: VmConfig,
        inbox: Inbox,
        console: Console,
        launcher: Launcher,
        run_state: RunState,
        channel: PeerChannel | None,
        *,
        enter: Callable[[], None],
    ) -> None:
        """`enter` is called when the program is asked to save."""
        self._config = config
        self._inbox = inbox
        self._console = console
        self._launcher = launcher
        self._run_state = run_state
        self._channel = channel if config.saves_together else None
        self._enter = enter
        self._clock = inbox.clock.monotonic_s
        self._key: IncarnationKey | None = None
        """The round that a moment was chosen for."""
        self._number = 0
        """Number of the request, within this round, that the moment was chosen for."""
        self._asked: IncarnationKey | None = None
        """The last round whose program was asked to save, with its peers or alone."""
        self._acts_at = math.inf
        """The chosen moment: when all members ask their programs to save."""
        self._has_acted = False
        """Whether this program was asked then."""
        self._save_ends_at = math.inf
        """When the save must have ended, because the first VM that is about to stop is given up:
        its replacement is requested.
        """
        self._round_ended_at: float | None = None
        """When a directive ended the round."""
        if self._channel is not None:
            self._channel.on(KIND, self._on_peer)

    def request(self, program: Program | None, gives_up_s: float) -> bool:
        """Ask the program to save, and those of the peers, because this VM is about to stop; return
        whether a program runs.

        `gives_up_s`: seconds until the VM is given up, which means that a replacement is requested.
        """
        key = self._run_state.last_started
        if program is None or key is None:
            return False
        if self._channel is not None:
            self._ask_peers(self._channel, key, self._number_of_notice(key), gives_up_s)
        elif self._config.save_on_notice != "off":
            name = self._config.checkpoint_signal
            self._asked = key
            self._acts_at = self._clock()
            self._save_ends_at = self._acts_at + gives_up_s
            self._enter()
            self._console.log(f"Sending {name.name} to the program, so that it saves its state.")
            self._launcher.show_notice()
            program.notify(name)
        return True

    def on_directive(self, directive: ReceivedDirective) -> None:
        """Ask the program to save at once if the directive orders it: the peer's datagrams have not
        arrived. With `asks_peers`, ask all members.
        """
        if directive.action != "save":
            return
        if directive.asks_peers and self._channel is not None:
            self._ask_peers_if_caught(self._channel, directive)
        # Without a channel, a program that does not catch the signal is not asked.
        elif self._channel is not None or self._launcher.prepare_save():
            left_s = directive.until - self._inbox.clock.now_s()
            # The directive may come when its time is over, or the clock of this VM may be wrong.
            save_s = max(left_s, self._config.grace_s)
            self._choose_moment(directive.key, directive.save_number, in_s=0.0, gives_up_s=save_s)

    def _ask_peers_if_caught(self, channel: PeerChannel, directive: ReceivedDirective) -> None:
        """Ask all members to save, so that more members can join, or because the job ends.

        A program that does not catch the signal would work on, and its later exit would count for
        nothing. It is looked at again after a while, because it may not have installed its handler
        yet.
        """
        desired = self._run_state.desired
        key = directive.key
        number = directive.save_number
        is_current = desired is not None and (desired.key, desired.save_number) == (key, number)
        was_requested = self._key == key and self._number >= number
        if not is_current or was_requested:
            return
        is_started = key == self._run_state.last_started and self._launcher.is_running
        if is_started and self._launcher.prepare_save():
            self._console.log("All members are asked to save, and to stop together.")
            left_s = directive.until - self._inbox.clock.now_s()
            is_clock_wrong = not 0 < left_s <= FINISH_S
            self._ask_peers(channel, key, number, FINISH_S if is_clock_wrong else left_s)
        else:
            ask = functools.partial(self._ask_peers_if_caught, channel, directive)
            self._inbox.post_later(CATCH_AGAIN_S, ask)

    def was_asked(self, key: IncarnationKey) -> bool:
        """Return whether this program was asked to save, so that its end is neither a success nor a
        failure.

        That is so even if the notice was withdrawn: the program saves. After the latest time at
        which a save ends, it is False again: a program that still runs then went on.
        """
        latest = max(self._acts_at + FINISH_S, self._save_ends_at + LATE_S)
        return key == self._asked and self._clock() < latest

    @property
    def patience_s(self) -> float:
        """How long the agent waits for the program to save and end by itself, after a directive has
        ended the round. 0: the program was not asked, or is stopped.
        """
        desired = self._run_state.desired
        if self._key != self._run_state.last_started or desired is None or desired.action == "stop":
            return 0.0
        if not self._has_acted:
            return max(0.0, self._acts_at + TIMER_SKEW_S - self._clock())
        if self._round_ended_at is None:
            self._round_ended_at = self._clock()
        return max(0.0, min(self._round_ended_at + FINISH_S, self._save_ends_at) - self._clock())

    def _number_of_notice(self, key: IncarnationKey) -> int:
        """Return the number of a request that this agent makes: the last one in this round, unless
        the program was asked long ago, and may have saved and gone on.
        """
        if key != self._key:
            return 1
        is_old = self._has_acted and self._clock() - self._acts_at > AGAIN_S
        return self._number + 1 if is_old else self._number

    def _ask_peers(
        self, channel: PeerChannel, key: IncarnationKey, number: int, gives_up_s: float
    ) -> None:
        """Choose a moment, tell the peers, and report which of them did not answer."""
        gives_up_at = self._clock() + gives_up_s
        self._choose_moment(key, number, MOMENT_S, gives_up_s)
        channel.ask(
            KIND,
            key,
            lambda: {
                IN: max(0.0, self._acts_at - self._clock()),
                GIVES_UP: gives_up_at - self._clock(),
            },
            ASK_S,
            lambda silent: self._run_state.report_notice(
                key, gives_up_at - self._clock(), number, silent
            ),
            number,
        )

    def _on_peer(self, datagram: Datagram) -> None:
        self._choose_moment(
            datagram.key,
            datagram.number,
            datagram.seconds.get(IN, 0.0),
            datagram.seconds.get(GIVES_UP, 0.0),
        )

    def _choose_moment(
        self, key: IncarnationKey, number: int, in_s: float, gives_up_s: float
    ) -> None:
        """Ask the program to save in `in_s` seconds, unless an earlier moment was chosen for this
        request, or a later request is known.

        `gives_up_s`: seconds until the save must have ended.
        """
        is_known = key == self._key and number <= self._number
        is_outdated = is_known and number < self._number
        if key != self._run_state.last_started or is_outdated:
            return
        now = self._clock()
        if not is_known:
            self._key = key
            self._number = number
            self._acts_at = math.inf
            self._has_acted = False
            self._save_ends_at = math.inf
            self._round_ended_at = None
        self._save_ends_at = min(self._save_ends_at, now + min(max(gives_up_s, 0.0), AHEAD_MAX_S))
        in_s = min(max(in_s, 0.0), MOMENT_S)
        if not self._has_acted and now + in_s < self._acts_at:
            self._acts_at = now + in_s
            self._inbox.post_later(in_s, functools.partial(self._act_if_due, key, self._acts_at))
            self._launcher.prepare_save()

    def _act_if_due(self, key: IncarnationKey, moment: float) -> None:
        """Ask the program to save, unless another moment or another incarnation counts by now."""
        is_current = key == self._run_state.last_started == self._key
        is_due = moment == self._acts_at and not self._has_acted
        if is_current and is_due and self._launcher.is_running:
            self._has_acted = True
            self._asked = key
            self._enter()
            self._console.log(f"All members of the job save now: {self._launcher.request_save()}.")
