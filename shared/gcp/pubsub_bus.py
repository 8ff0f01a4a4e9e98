"""The Bus on Pub/Sub."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import Final

from shared.errors import TemporaryError
from shared.gcp import callers
from shared.gcp.rest import Rest, RestError

GOOGLE: Final = "https://pubsub.googleapis.com"
TIMEOUT_S: Final = 10.0


class PubsubBus:
    """See `shared.ports.Bus`. Thread-safe."""

    def __init__(self, project: str) -> None:
        emulator = os.environ.get("PUBSUB_EMULATOR_HOST")
        caller = callers.Emulated() if emulator else callers.ours()
        self._rest = Rest(f"http://{emulator}" if emulator else GOOGLE, caller, TIMEOUT_S)
        self._topics = f"/v1/projects/{project}/topics"

    def publish(self, topic: str, data: bytes, attributes: Mapping[str, str]) -> None:
        message = {"data": base64.b64encode(data).decode("ascii"), "attributes": dict(attributes)}
        try:
            self._rest.post(f"{self._topics}/{topic}:publish", {"messages": [message]})
        except RestError as error:
            if error.is_transient:
                raise TemporaryError(f"publish to {topic}: {error}") from error
            raise
        except TemporaryError as error:
            raise TemporaryError(f"publish to {topic}: {error}") from error

    def close(self) -> None:
        self._rest.close()
