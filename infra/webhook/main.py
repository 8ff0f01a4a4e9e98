"""Post notifications of jobs to a webhook of Slack, Mattermost or Google Chat: all of them take
`{"text": …}`.

An optional function of the installation (`notification_webhooks` in infra/variables.tf), and an
example of a subscriber. It is deployed as this one file. Settings: WEBHOOK_ADDRESS, from Secret
Manager; CONSOLE_ADDRESS, or empty.

    204  posted, or permanently refused by the webhook, which is logged: not delivered again.
         A redirection counts as refused: it could lead to addresses that only this function reaches
    503  the webhook was not reached, or is overloaded: Pub/Sub delivers the message again
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
import os
import re
from http import HTTPStatus
from typing import Any, Final

import functions_framework
import requests
from flask import Request

TIMEOUT_S: Final = 10.0
ERROR_LENGTH_MAX: Final = 500
SIGNS: Final = {"succeeded": "✅", "failed": "❌", "cancelled": "⏹", "rerun": "🔁"}
"""First character of the text, by transition. Others have none."""
MARKUP: Final = {"<": "(", ">": ")", "@": "(at)", "](": "] ("}
"""Text that begins a labelled link, or a mention of a person or a channel, in Slack, Mattermost and
Google Chat → its replacement.
"""

_log = logging.getLogger(__name__)


@functions_framework.http
def post_notification(request: Request) -> tuple[str, int]:
    """Handle one push request of Pub/Sub."""
    try:
        job = json.loads(
            base64.b64decode(json.loads(request.get_data())["message"]["data"], validate=True)
        )
        text = text_of(job, os.environ.get("CONSOLE_ADDRESS", ""))
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        _log.error("not a notification of a job: %r", error)
        return "", HTTPStatus.NO_CONTENT
    return "", _post(os.environ["WEBHOOK_ADDRESS"].strip(), text)


def text_of(job: dict[str, Any], console: str) -> str:
    """Return the message about a transition, in one or two lines.

    Raises KeyError if a required field is missing.
    """
    attempt = f", attempt {job['attempt']}" if job["attempt"] > 1 else ""
    sign = SIGNS.get(job["transition"], "")
    head = f"{sign} {job['job_id']}: {job['transition']} ({job['state']}{attempt})".strip()
    why = job.get("error_message") or job["text"]
    link = f"\n{console.rstrip('/')}/jobs/{job['job_id']}" if console else ""
    return f"{head}\n{_make_harmless(why[:ERROR_LENGTH_MAX])}{link}"


def _make_harmless(text: str) -> str:
    """Return the text, which a program may have chosen, in one line that neither mentions anyone
    nor hides a link, without characters that reverse text or that nobody sees.
    """
    words = ("".join(filter(str.isprintable, word)) for word in text.split())
    text = " ".join(filter(None, words))
    for markup, replacement in MARKUP.items():
        text = text.replace(markup, replacement)
    return text


def _post(address: str, text: str) -> HTTPStatus:
    """Return the status for Pub/Sub. The address is a secret, and so are errors that contain it."""
    try:
        with requests.post(
            address, json={"text": text}, timeout=TIMEOUT_S, allow_redirects=False, stream=True
        ) as response:
            return _judge(response, address)
    except requests.RequestException as error:
        _log.warning("the webhook was not reached: %s", type(error).__name__)
        return HTTPStatus.SERVICE_UNAVAILABLE


def _judge(response: requests.Response, address: str) -> HTTPStatus:
    """Return the status for Pub/Sub, and log a refusal with the beginning of its reason."""
    status = response.status_code
    if status == HTTPStatus.TOO_MANY_REQUESTS or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        _log.warning("the webhook answered %d", status)
        return HTTPStatus.SERVICE_UNAVAILABLE
    if status >= HTTPStatus.MULTIPLE_CHOICES:
        begin: bytes = next(response.iter_content(ERROR_LENGTH_MAX), b"")
        reason = _without_address(begin.decode(errors="replace"), address)
        _log.error("the webhook refused the message: %d %r", status, reason)
    return HTTPStatus.NO_CONTENT


def _without_address(text: str, address: str) -> str:
    """Return the text without the secret parts of the address: all those that follow its host."""
    _, *parts = re.split("[/?&=]+", address.partition("://")[2])
    for part in sorted(filter(None, parts), key=len, reverse=True):
        text = text.replace(part, "…")
    return text
