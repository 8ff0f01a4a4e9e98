"""The installation's price list, read from its bucket."""

from __future__ import annotations

from cachetools.func import ttl_cache

from trainmaster.cost.price_list import BYTES_MAX, OBJECT_NAME, PriceList, read_price_list
from trainmaster.cost.sku import Unknown
from trainmaster.errors import PermanentError, TemporaryError
from trainmaster.gcp.errors import USER_ERRORS
from trainmaster.gcp.retries import OPTIONAL_READ_S
from trainmaster.settings import settings
from trainmaster.wiring.objects import objects

REREAD_AFTER_S = 600
"""Seconds for which a process uses the list that it has read."""
ADVICE = "`trainmaster prices update` makes one"
"""The end of messages: what a user without a price list does."""
NO_LIST = f"there is no price list; {ADVICE}"


def price_list_uri() -> str:
    """Return the address of the price list.

    Raises PermanentError if the installation names no bucket.
    """
    if not settings().bucket:
        raise PermanentError(
            "the price list is kept in the installation's bucket: set TRAINMASTER_BUCKET"
        )
    return f"gs://{settings().bucket}/{OBJECT_NAME}"


@ttl_cache(maxsize=1, ttl=REREAD_AFTER_S)
def price_list() -> PriceList | Unknown:
    """Return the price list, at most ten minutes old, or why there is none.

    A missing price list never makes a page fail.

    Cloud Storage answers 403 for a missing object to a caller who may not list, such as the hosted
    console.
    """
    if not settings().bucket:
        return Unknown("the installation's bucket is not known here: set TRAINMASTER_BUCKET")
    uri = price_list_uri()
    try:
        data = objects(OPTIONAL_READ_S).read(uri, max_bytes=BYTES_MAX)
        return Unknown(NO_LIST) if data is None else read_price_list(data)
    except (PermanentError, TemporaryError, *USER_ERRORS) as error:
        return Unknown(f"{uri} cannot be read: {error}; {ADVICE}")
