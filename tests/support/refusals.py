"""What the IAM of a realistic stack has refused."""

from __future__ import annotations

from collections import Counter

from trainmaster_emulators.realism.call_access import REFUSED


def read_refusals(output: str) -> Counter[str]:
    """Return message of a refusal → number of calls.

    `output`: what an emulator printed; in a stack, its log file.
    """
    lines = (line for line in output.splitlines() if line.startswith(REFUSED))
    return Counter(line.removeprefix(REFUSED) for line in lines)
