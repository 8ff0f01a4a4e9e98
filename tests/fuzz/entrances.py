"""Every place at which text of others is read."""

from __future__ import annotations

from typing import Final

from tests.fuzz.api_requests import API
from tests.fuzz.console_visits import CONSOLE
from tests.fuzz.entrance import Entrances
from tests.fuzz.messages import MESSAGES
from tests.fuzz.programs import PROGRAMS
from tests.fuzz.submissions import SUBMISSIONS
from tests.fuzz.tokens import TOKENS

ENTRANCES: Final[Entrances] = {
    **MESSAGES,
    **SUBMISSIONS,
    **API,
    **CONSOLE,
    **TOKENS,
    **PROGRAMS,
}
