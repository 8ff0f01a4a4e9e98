"""Discord gets the text in the field that it reads, and the other chats in theirs."""

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

webhook: Any = importlib.import_module("main")

posted: list[tuple[str, dict[str, str]]] = []


@contextmanager
def post(address: str, json: dict[str, str], **_: object) -> Iterator[SimpleNamespace]:
    posted.append((address, json))
    yield SimpleNamespace(status_code=204)


webhook.requests = SimpleNamespace(post=post, RequestException=OSError)
discord = "https://discord.com/api/webhooks/1/x"
slack = "https://hooks.slack.com/services/x"
webhook._post(discord, "digits_1: failed")
webhook._post(slack, "digits_1: failed")
assert posted == [
    (discord, {"content": "digits_1: failed"}),
    (slack, {"text": "digits_1: failed"}),
]
