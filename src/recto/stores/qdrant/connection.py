"""The one place that calls the Qdrant server: tries, deadlines, and every failure turned into one of our errors."""

from __future__ import annotations

import re
import threading
import time
import warnings
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from recto._util.retry import (
    DeadlineExceeded,
    Notify,
    PerLoop,
    abounded,
    aretried,
    bounded,
    redacted,
    retried,
)
from recto.errors import (
    CollectionMissing,
    ConfigurationError,
    FingerprintMismatch,
    RectoError,
    Unreachable,
    missing_extra,
)
from recto.settings import is_local_address

if TYPE_CHECKING:
    from qdrant_client import AsyncQdrantClient, QdrantClient

Result = TypeVar("Result")

_READ_SECONDS = 5
_WRITE_SECONDS = 60
_READ_TRIES = 3
_WRITE_TRIES = 6
_FIRST_WAIT = 0.2
_LONGEST_WAIT = 60.0
_INDEX_REQUIRED = re.compile(r'Index required but not found for "?([^"\s]+)"?')


class IndexRequired(RectoError):
    """The server refuses to filter by a field that has no payload index."""

    kind = ConfigurationError.kind
    label = ConfigurationError.label

    def __init__(self, field: str) -> None:
        super().__init__(
            f"The server wants a payload index on '{field}' before it filters by it",
            hint="Run `recto prepare`.",
        )
        self.field = field


class TransientError(Unreachable):
    """A trouble that may be gone at the next try."""

    def __init__(self, message: str, *, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class Connection:
    """Calls a server: reads are tried three times, writes more patiently; both may be repeated without harm."""

    def __init__(
        self, url: str, api_key: str, notify: Notify, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        if api_key and url.startswith("http://"):
            if not is_local_address(url):
                raise ConfigurationError(
                    "QDRANT_API_KEY would be sent over plain http",
                    hint="Use https in QDRANT_URL, or leave the key out.",
                )
            notify(
                f"[WARNING] QDRANT_API_KEY is sent over plain http to {url}, which is on this machine or a private network"
            )
        self.url = url
        self._api_key = api_key
        self._notify = notify
        self._sleep = sleep
        self._client: QdrantClient | None = None
        self._async_clients = PerLoop(self._async_client)
        self._connecting = threading.Lock()

    @property
    def client(self) -> QdrantClient:
        """The official client; it checks nothing by itself."""
        with self._connecting:
            if self._client is None:
                try:
                    from qdrant_client import QdrantClient
                except ImportError as error:
                    raise missing_extra("A Qdrant server", "cloud") from error
                with warnings.catch_warnings():
                    warnings.simplefilter(
                        "ignore"
                    )  # of a key over http, of which we have spoken in our own words
                    self._client = QdrantClient(
                        url=self.url,
                        api_key=self._api_key or None,
                        timeout=_READ_SECONDS,
                        check_compatibility=False,
                    )
            return self._client

    def read(self, call: Callable[[QdrantClient], Result]) -> Result:
        """Call up to three times."""
        return retried(lambda: self._once(call, _READ_SECONDS), _three_times, self._sleep)

    async def aread(self, call: Callable[[AsyncQdrantClient], Awaitable[Result]]) -> Result:
        """Await a call up to three times."""

        async def single_query() -> Result:
            try:
                return await abounded(call(self._async_clients.get()), _READ_SECONDS)
            except Exception as error:  # noqa: BLE001 - as in `_once`
                raise self._translated(error) from None

        return await aretried(single_query, _three_times)

    def _async_client(self) -> AsyncQdrantClient:
        _ = self.client  # says which extra is missing
        from qdrant_client import AsyncQdrantClient

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return AsyncQdrantClient(
                url=self.url, api_key=self._api_key or None, timeout=_READ_SECONDS, check_compatibility=False
            )

    def write(self, call: Callable[[QdrantClient], Result]) -> Result:
        """Call until it succeeds or patience ends, and tell of every wait."""

        def wait_for(failures: int, error: Exception) -> float | None:
            if not isinstance(error, TransientError) or failures >= _WRITE_TRIES:
                return None
            pause = min(
                _LONGEST_WAIT,
                error.retry_after if error.retry_after is not None else _FIRST_WAIT * 2 ** (failures - 1),
            )
            self._notify(f"{error.message}: waiting {pause:.1f} s (try {failures + 1} of {_WRITE_TRIES})")
            return pause

        return retried(lambda: self._once(call, _WRITE_SECONDS), wait_for, self._sleep)

    def close(self) -> None:
        """Let go of the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    async def aclose(self) -> None:
        """Let go of the running event loop's connections."""
        client = self._async_clients.pop()
        if client is not None:
            await client.close()

    def _once(self, call: Callable[[QdrantClient], Result], seconds: float) -> Result:
        client = self.client
        try:
            return bounded(lambda: call(client), seconds)
        except Exception as error:  # noqa: BLE001 - the client raises its own errors, httpx's, json's and bare assertions
            raise self._translated(error) from None  # its text may repeat the key; `__context__` still has it

    def _translated(self, error: Exception) -> RectoError:  # noqa: PLR0911 - a table
        if isinstance(error, RectoError):
            return error
        status = getattr(error, "status_code", None)
        retry_after = getattr(error, "retry_after_s", None)
        if retry_after is not None or status == 429:
            hint = f"Try again in {retry_after} s." if retry_after else "Try again in a minute."
            return TransientError(
                "Qdrant's rate limit is reached",
                hint=hint,
                retry_after=None if retry_after is None else float(retry_after),
            )
        if isinstance(status, int):
            return self._refused(status, _text(error))
        source = getattr(error, "source", error)
        if isinstance(error, DeadlineExceeded) or "Timeout" in type(source).__name__:
            return TransientError(
                f"Qdrant at {self.url} did not answer in time",
                hint="Try again; a large collection may be loading.",
            )
        if (
            "Connect" in type(source).__name__
            or "Protocol" in type(source).__name__
            or "Network" in type(source).__name__
        ):
            return TransientError(
                f"Cannot connect to Qdrant at {self.url}",
                hint="Is the server running? Check QDRANT_URL."
                if is_local_address(self.url)
                else "Check QDRANT_URL and the network. A free cluster that was idle for long must be resumed in the Qdrant Cloud console.",
            )
        if (
            "Read" in type(source).__name__
            or "Write" in type(source).__name__
            or "Close" in type(source).__name__
        ):
            return TransientError(f"The connection to Qdrant at {self.url} broke", hint="Try again.")
        return TransientError(
            f"The answer from {self.url} cannot be understood",
            hint="Is it a Qdrant server? Check QDRANT_URL.",
        )

    def _refused(self, status: int, text: str) -> RectoError:
        text = redacted(text, self._api_key)
        if status in (401, 403):
            return ConfigurationError(
                "Qdrant refuses the key in QDRANT_API_KEY",
                hint="Check the key, and that it may read this cluster.",
            )
        if found := _INDEX_REQUIRED.search(text):
            return IndexRequired(found[1])
        if status == 404:
            return CollectionMissing(
                f"Qdrant at {self.url} says: {text}",
                hint="Check QDRANT_URL and COLLECTION_NAME, or run `recto index PATH`.",
            )
        if "dimension error" in text:
            return FingerprintMismatch(
                f"The vectors do not fit the collection: {text}", hint="Check the embedding model."
            )
        if status >= 500:
            return TransientError(
                f"Qdrant at {self.url} is not available ({status})", hint="Try again in a moment."
            )
        return ConfigurationError(
            f"Qdrant at {self.url} refuses the request ({status}): {text}", hint="`RECTO_DEBUG=1` shows more."
        )


def _three_times(failures: int, error: Exception) -> float | None:
    """How long a read waits before the next of its three tries."""
    if not isinstance(error, TransientError) or failures >= _READ_TRIES:
        return None
    pause = error.retry_after if error.retry_after is not None else _FIRST_WAIT * 2 ** (failures - 1)
    return pause if pause <= _READ_SECONDS else None


def _text(error: Any) -> str:
    """Return the server's own words."""
    try:
        said = error.structured()["status"]["error"]
    except (ValueError, LookupError, TypeError, AttributeError):  # not JSON, or not of that shape
        said = getattr(error, "content", b"") or b""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())[:300] or "no reason given"
