"""Opens a prefix of a bucket: ``s3://``, ``gs://``, ``az://``, and ``memory:`` for trying things out.

The client (obstore) takes credentials and endpoints from the environment, under the names that each provider's
own tools use: ``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, ``GOOGLE_APPLICATION_CREDENTIALS``,
``AZURE_STORAGE_ACCOUNT_NAME`` and their kin. They never stand in an address.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import re
from typing import TYPE_CHECKING, Any

from samestep.bundle.errors import RequestError
from samestep.bundle.storage.object_uploads import ENDPOINTS, UnfinishedUploads

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

    from samestep.bundle.storage.base import Storage

MEMORY = "memory:"
_ADDRESS = re.compile(
    r"(?P<scheme>s3|gs|az)://(?P<container>[a-z0-9][a-z0-9._-]{1,220}[a-z0-9])(/(?P<prefix>.*))?"
)
_ENDPOINTS = {
    "s3": ENDPOINTS,
    "gs": ("GOOGLE_BASE_URL",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURITE_BLOB_STORAGE_URL"),
}
_ENDPOINT = re.compile(r"https?://[A-Za-z0-9.:\[\]_-]+(/[^\s?#@]*)?")
_EMULATOR = "AZURE_STORAGE_USE_EMULATOR"


@dataclasses.dataclass(frozen=True)
class Patience:
    """How long an object store is given before it counts as failed.

    With these defaults a store that throttles is waited for about a quarter of a minute, and one that is
    gone is known to be gone within three: a machine about to be taken away has no more.
    """

    retries: int = 8  #: of one request: server errors, dropped and refused connections
    first_wait_seconds: float = 0.1  #: before the first retry; doubled from one to the next
    longest_wait_seconds: float = 5.0  #: so that the last retries still fall into the limit
    give_up_seconds: float = 60.0  #: after the first try, no retry is begun
    request_seconds: float = 120.0  #: one request with its body; a piece of 8 MiB passes at 70 kB/s
    connect_seconds: float = 5.0

    def pauses(self) -> list[float]:
        """Return how long to wait before each retry, in seconds."""
        return [
            min(self.longest_wait_seconds, self.first_wait_seconds * 2**retry)
            for retry in range(self.retries)
        ]

    def retry_config(self) -> RetryConfig:
        """Return it in the client's words."""
        return {
            "max_retries": self.retries,
            "retry_timeout": dt.timedelta(seconds=self.give_up_seconds),
            "backoff": {
                "init_backoff": dt.timedelta(seconds=self.first_wait_seconds),
                "max_backoff": dt.timedelta(seconds=self.longest_wait_seconds),
                "base": 2,
            },
        }

    def client_options(self, *, plain_http: bool) -> ClientConfig:
        """Return the time limits of a request; plain HTTP only where an endpoint asks for it."""
        return {
            "timeout": dt.timedelta(seconds=self.request_seconds),
            "connect_timeout": dt.timedelta(seconds=self.connect_seconds),
            "allow_http": plain_http,
        }


def open_object_store(url: str, *, patience: Patience | None = None) -> Storage:
    """Open the place that ``url`` names; no request is made yet.

    Args:
        url: ``s3://BUCKET/PREFIX``, ``gs://BUCKET/PREFIX``, ``az://CONTAINER/PREFIX`` or ``memory:``, which lives
            as long as the handle.
        patience: retries and time limits.

    Raises:
        RequestError: the address cannot be used, the settings in the environment do not suffice, or the extra
            ``cloud`` is not installed.
    """
    place = _parse(url)
    patience = patience or Patience()
    storage, errors = _client()
    try:
        store = _connect(place, patience)
    except errors.FAILURES as error:
        raise errors.place_failed(f"opening {place.url}", error) from None
    uploads = UnfinishedUploads(place.container, place.prefix) if place.scheme == "s3" else None
    opened: Storage = storage.ObjectStorage(place.url, store, patience.pauses(), uploads)
    return opened


@dataclasses.dataclass(frozen=True)
class _Place:
    scheme: str
    container: str
    prefix: str

    @property
    def url(self) -> str:
        if self.scheme == "memory":
            return MEMORY
        return f"{self.scheme}://{self.container}" + (f"/{self.prefix}" if self.prefix else "")


def _parse(url: str) -> _Place:
    if url in {MEMORY, "memory://", "memory:///"}:
        return _Place("memory", "", "")
    scheme = url.partition(":")[0][:10]
    if any(character in url for character in "@?#"):
        raise RequestError(
            f"the {scheme} address has a login, a query or a fragment in it; only a bucket and a prefix belong there",
            hint="Give credentials through the environment, for example AWS_ACCESS_KEY_ID.",
        )
    match = _ADDRESS.fullmatch(url)
    prefix = (match["prefix"] or "").rstrip("/") if match else ""
    if not match or {"", ".", ".."} & set(prefix.split("/") if prefix else ()):
        raise RequestError(
            f"{url!r} is not the address of an object store",
            hint="Write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX.",
        )
    return _Place(match["scheme"], match["container"], prefix)


def _client() -> tuple[Any, Any]:
    """Return the modules that need the client."""
    try:
        from samestep.bundle.storage import object_errors, object_storage
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "obstore":
            raise
        raise RequestError(
            "object stores need the package obstore, which is not installed",
            hint="pip install 'samestep[cloud]'",
        ) from None
    return object_storage, object_errors


def _connect(place: _Place, patience: Patience) -> ObjectStore:
    from obstore.store import AzureStore, GCSStore, MemoryStore, S3Store

    if place.scheme == "memory":
        return MemoryStore()
    kinds = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
    store: ObjectStore = kinds[place.scheme](
        place.container,
        prefix=place.prefix or None,
        client_options=patience.client_options(plain_http=_plain_http(place.scheme)),
        retry_config=patience.retry_config(),
    )
    return store


def _plain_http(scheme: str) -> bool:
    """Return whether the user's endpoint is one without TLS, as those on one's own machine are."""
    endpoints = {name: os.environ[name] for name in _ENDPOINTS[scheme] if os.environ.get(name)}
    for name, endpoint in endpoints.items():
        if not _ENDPOINT.fullmatch(endpoint):  # the client would end in a panic
            raise RequestError(
                f"the environment variable {name} is not the address of a server",
                hint="Write http://HOST:PORT or https://HOST, without a login.",
            )
    emulator = scheme == "az" and os.environ.get(_EMULATOR, "").lower() in {"1", "true", "yes", "on"}
    return emulator or any(endpoint.startswith("http://") for endpoint in endpoints.values())
