"""Pages of Compute's lists: `maxResults` and `pageToken`."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Final

from trainmaster_emulators.machines.compute_errors import Json, invalid

PAGE_SIZE_MAX: Final = 500
"""Source: Compute's reference, maxResults: 0 to 500, default 500."""


def take_page(
    items: Sequence[tuple[str, Json]], max_results: str | None, token: str | None
) -> tuple[list[Json], str | None]:
    """Return one page and the token of the next one.

    `items` are resources with their sort keys, in the order of these keys. A token holds the last
    key of its page.
    """
    size = PAGE_SIZE_MAX if max_results is None else _page_size(max_results)
    after = _decode(token) if token else None
    remaining = [(key, item) for key, item in items if after is None or key > after]
    page = remaining[:size]
    has_more = page and len(remaining) > size
    next_token = base64.urlsafe_b64encode(page[-1][0].encode()).decode() if has_more else None
    return [item for _, item in page], next_token


def _page_size(text: str) -> int:
    if not text.isdigit() or int(text) > PAGE_SIZE_MAX:
        raise invalid("maxResults", text, f"Must be a number between 0 and {PAGE_SIZE_MAX}.")
    return int(text)


def _decode(token: str) -> str:
    try:
        return base64.urlsafe_b64decode(token.encode()).decode()
    except (binascii.Error, ValueError):
        raise invalid("pageToken", token, "The page token does not belong to this list.") from None
