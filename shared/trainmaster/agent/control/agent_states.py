"""The states of the agent: which state may follow which, and why.

A directive is the order of the control plane to hold, run, save or stop one incarnation, which is
one execution of the program::

    IDLE ──► SETTING_UP ──► WAITING ──► RUNNING ──► SAVING ──► ENDING
                                           └─────────────────────▲
    the start failed or is no longer ordered, or the program ended: ──► IDLE
    the VM shuts down: with a program ──► SHUTTING_DOWN ──► FINISHED, otherwise ──► FINISHED
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class AgentState(Enum):
    """The states. The value of each one says what it means."""

    IDLE = "no program runs, and none is being prepared"
    SETTING_UP = "a thread prepares the next start"
    WAITING = (
        "the VM is set up, but the directive holds the start or orders a pause, or other hosts of"
        " the slice have not stopped the previous incarnation yet"
    )
    RUNNING = "the program runs"
    SAVING = (
        "the program runs, and was asked to save because the end of this VM, or of a peer's, was"
        " announced"
    )
    ENDING = "a directive ends the program: its exit is not reported"
    SHUTTING_DOWN = (
        "the shutdown of the VM ends the program: its exit is reported, unless a directive ends"
        " it, too"
    )
    FINISHED = (
        "the VM shuts down, and no program runs: the agent handles the remaining events, and exits"
    )


S = AgentState

EDGES: Final = {
    (S.IDLE, S.SETTING_UP): "the directive holds or runs an incarnation that was not started yet",
    (S.IDLE, S.FINISHED): "the VM shuts down",
    (S.SETTING_UP, S.IDLE): "the setup failed, or a newer directive orders no start",
    (S.SETTING_UP, S.WAITING): "set up for the incarnation that is desired now",
    (S.SETTING_UP, S.FINISHED): "the VM shuts down: the setup is cancelled",
    (S.WAITING, S.IDLE): "the start failed, or a directive orders another incarnation, or none",
    (S.WAITING, S.RUNNING): "the start is allowed, and the program was started",
    (S.WAITING, S.FINISHED): "the VM shuts down",
    (S.RUNNING, S.IDLE): "the program ended by itself, or because it had stalled",
    (S.RUNNING, S.SAVING): "the end of the VM, or of a peer's, was announced",
    (S.RUNNING, S.ENDING): "a directive orders another incarnation, or none",
    (S.RUNNING, S.SHUTTING_DOWN): "the VM shuts down",
    (S.SAVING, S.IDLE): "the program ended, usually because it had saved",
    (S.SAVING, S.ENDING): "a directive orders another incarnation, or none",
    (S.SAVING, S.SHUTTING_DOWN): "the VM shuts down before the program has saved and ended",
    (S.ENDING, S.IDLE): "the program ended",
    (S.ENDING, S.SHUTTING_DOWN): "the VM shuts down before the program has ended",
    (S.SHUTTING_DOWN, S.FINISHED): "the program ended",
}
