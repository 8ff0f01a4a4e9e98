"""Pages of lists: the size that a request asks for, and the token of the next page.

A token is the number of the page's first item, or it holds the sort key after which the page
begins. A key is encoded, so that clients do not rely on it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import TypeVar

from trainmaster_emulators.rest.api_errors import ApiError

Item = TypeVar("Item")


def page_size(text: str, size_max: int, error: ApiError) -> int:
    """Return the size of a page: at most the maximum, which is also that of 0 and of an empty text.

    Raises `error` if the text is not a number.
    """
    return min(_number(text, error) or size_max, size_max)


def page_start(token: str, error: ApiError) -> int:
    """Return the number of the page's first item. Raises `error` if the token is not a number."""
    return _number(token, error)


def numbered_page(
    items: Sequence[Item], token: str, size: int, error: ApiError
) -> tuple[Sequence[Item], str]:
    """Return a page and the token of the next one, empty for the last page.

    Raises `error` if the token is not a number.
    """
    start = page_start(token, error)
    end = start + size
    return items[start:end], str(end) if end < len(items) else ""


def encode_token(key: str) -> str:
    """Return the token of a page that begins after this sort key."""
    return base64.urlsafe_b64encode(key.encode()).decode()


def decode_token(token: str, error: ApiError) -> str:
    """Return the key in a token. Raises `error` if the token is damaged."""
    try:
        return base64.urlsafe_b64decode(token.encode()).decode()
    except (binascii.Error, ValueError):
        raise error from None


def _number(text: str, error: ApiError) -> int:
    """Return the number that a text stands for; 0 for an empty text."""
    if text and not text.isdecimal():
        raise error
    return int(text or 0)
