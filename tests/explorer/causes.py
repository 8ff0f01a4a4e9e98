"""Why a program ended, in fact."""

from __future__ import annotations

from typing import Final

OWN: Final = "own"
"""It failed by itself."""
PEER: Final = "peer"
"""It failed because a peer went."""
DONE: Final = "done"
"""It completed."""
SAVED: Final = "saved"
"""It saved with its peers, and exited."""
EXITS: Final = "exits"
GOES_ON: Final = "goes_on"
IGNORES: Final = "ignores"
"""What a program does that is asked to save: the last ones catch no signal."""
STOPPED: Final = "stopped"
"""A directive ended it."""
STALLED: Final = "stalled"
"""It printed nothing, and its agent ended it."""
VM: Final = "vm"
"""Its VM ended, or was about to."""
REBOOT: Final = "reboot"
"""Its machine rebooted, or its agent crashed and the next one ended it."""
HANG: Final = "hang"
"""Its machine hung."""
