"""Pages of Compute's lists: `maxResults` and `pageToken`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from trainmaster_emulators.machines.compute_errors import Json, invalid
from trainmaster_emulators.rest.pages import decode_token, encode_token

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
    if token:
        error = invalid("pageToken", token, "The page token does not belong to this list.")
        after = decode_token(token, error)
        items = [(key, item) for key, item in items if key > after]
    page = items[:size]
    next_token = None
    if page and len(items) > size:
        last_key, _ = page[-1]
        next_token = encode_token(last_key)
    return [item for _, item in page], next_token


def _page_size(text: str) -> int:
    if not text.isdigit() or int(text) > PAGE_SIZE_MAX:
        raise invalid("maxResults", text, f"Must be a number between 0 and {PAGE_SIZE_MAX}.")
    return int(text)
