"""The installation's own package index, if it has one: a mirror of PyPI in Artifact Registry."""

from __future__ import annotations

import urllib.parse

from trainmaster.agent.google_http.metadata_server import MetadataServer
from trainmaster.agent.setup.container_image import accepts_vm_token
from trainmaster.agent.setup.setup_errors import Retrier

KEY = "instance/attributes/trainmaster-package-index"


class PackageIndex:
    """The index that the VM's metadata names, if any."""

    def __init__(self, metadata: MetadataServer, retrier: Retrier) -> None:
        self._metadata = metadata
        self._retrier = retrier

    def environment(self) -> dict[str, str]:
        """Return the variables that make pip use the index; none without an index.

        The token in the URL lasts about an hour, so call this before each run of pip. pip does not
        print the token. Raises SetupError.
        """
        return self._retrier.call(
            "read the package index from the metadata", "PackageError", self._environment
        )

    def _environment(self) -> dict[str, str]:
        url = self._metadata.find(KEY)
        if url is None:
            return {}
        parts = urllib.parse.urlsplit(url)
        accepts_token = parts.scheme == "https" and accepts_vm_token(parts.hostname)
        token = self._metadata.access_token() if accepts_token else None
        return {"PIP_INDEX_URL": with_token(url, token)}


def with_token(url: str, token: str | None) -> str:
    """Add the VM's token to the URL as Artifact Registry expects it.

    Source: its manual, "Authenticate to Python".
    """
    if token is None:
        return url
    parts = urllib.parse.urlsplit(url)
    credentials = f"oauth2accesstoken:{urllib.parse.quote(token, safe='')}"
    return parts._replace(netloc=f"{credentials}@{parts.netloc}").geturl()
