"""The installation's price list, read from its bucket, and the catalogue that it is made of."""

from __future__ import annotations

from functools import cache

from cachetools.func import ttl_cache

from shared.cost.checkpoint_times import CheckpointTimes
from shared.cost.price_list import BYTES_MAX, OBJECT_NAME, PriceList, read_price_list
from shared.cost.sku import Unknown
from shared.errors import PermanentError, TemporaryError
from shared.gcp import clients
from shared.gcp.price_catalogue import PriceCatalogue
from shared.gcp.storage_objects import StorageObjects
from shared.gcp.user_errors import USER_ERRORS
from shared.settings import settings
from shared.wiring.objects import objects

REREAD_AFTER_S = 600
NO_LIST = "there is no price list; `trainmaster prices update` makes one"


def price_list_uri() -> str:
    """Return the address of the price list. Raises PermanentError if the installation names no bucket."""
    if not settings().bucket:
        raise PermanentError("the price list is kept in the installation's bucket: set TRAINMASTER_BUCKET")
    return f"gs://{settings().bucket}/{OBJECT_NAME}"


@ttl_cache(maxsize=1, ttl=REREAD_AFTER_S)
def price_list() -> PriceList | Unknown:
    """Return the price list, at most ten minutes old, or why there is none. A page never fails for want of prices."""
    if not settings().bucket:
        return Unknown("the installation's bucket is not known here: set TRAINMASTER_BUCKET")
    uri = price_list_uri()
    try:
        data = objects().read(uri, max_bytes=BYTES_MAX)
        return Unknown(NO_LIST) if data is None else read_price_list(data)
    except (PermanentError, TemporaryError, *USER_ERRORS) as error:
        return Unknown(f"{uri} cannot be read: {error}")


@cache
def checkpoint_times() -> CheckpointTimes:
    return CheckpointTimes(cache(lambda: StorageObjects(clients.storage_client())))


def price_catalogue(api_key: str = "") -> PriceCatalogue:
    return PriceCatalogue(settings().billing_endpoint, api_key)
