"""The connection to a Qdrant server: time limits, retries, and `RectoError`s for every failure."""

from __future__ import annotations

import re
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from recto._util.retry import (
    ClientPerLoop,
    DeadlineExceeded,
    Notify,
    aretry,
    awith_timeout,
    redacted,
    retry,
    with_timeout,
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
    import httpx
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
    """The server does not filter by a field without a payload index."""

    kind = ConfigurationError.kind
    label = ConfigurationError.label

    def __init__(self, field: str) -> None:
        super().__init__(
            f"The server cannot filter by '{field}' without a payload index", hint="Run `recto prepare`."
        )
        self.field = field


class TransientError(Unreachable):
    """A failure that may not happen again at the next try."""

    def __init__(self, message: str, *, hint: str = "", retry_after: float | None = None) -> None:
        super().__init__(message, hint=hint)
        self.retry_after = retry_after


class Connection:
    """Calls a server and retries after transient errors: reads up to 3 times, writes up to 6 times."""

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
                f"[WARNING] QDRANT_API_KEY is sent over plain http to {url}, "
                "which is on this machine or a private network"
            )
        self.url = url
        self._api_key = api_key
        self._notify = notify
        self._sleep = sleep
        self._client: QdrantClient | None = None
        self._async_clients = ClientPerLoop(self._async_client)
        self._connecting = threading.Lock()

    @property
    def client(self) -> QdrantClient:
        """The client of the Qdrant SDK."""
        with self._connecting:
            if self._client is None:
                try:
                    from qdrant_client import QdrantClient
                except ImportError as error:
                    raise missing_extra("A Qdrant server", "cloud") from error
                self._client = self._make_client(QdrantClient)
            return self._client

    def _async_client(self) -> AsyncQdrantClient:
        _ = self.client  # raises an error if the extra is missing
        from qdrant_client import AsyncQdrantClient

        return self._make_client(AsyncQdrantClient)

    def _make_client(self, kind: Callable[..., Result]) -> Result:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a key over http: the constructor gives its own warning
            return kind(
                url=self.url, api_key=self._api_key or None, timeout=_READ_SECONDS, check_compatibility=False
            )

    def read(self, call: Callable[[QdrantClient], Result]) -> Result:
        """Call the server, up to three times."""
        return retry(lambda: self._call(call, _READ_SECONDS), _read_backoff, self._sleep)

    async def aread(self, call: Callable[[AsyncQdrantClient], Awaitable[Result]]) -> Result:
        """Await a call of the server, up to three times."""

        async def attempt() -> Result:
            try:
                return await awith_timeout(call(self._async_clients.get()), _READ_SECONDS)
            except Exception as error:  # noqa: BLE001 - as in `_call`
                raise self._to_recto_error(error) from None

        return await aretry(attempt, _read_backoff)

    def write(self, call: Callable[[QdrantClient], Result]) -> Result:
        """Call the server, up to six times, and notify the user of every wait."""

        def backoff(failures: int, error: Exception) -> float | None:
            if not isinstance(error, TransientError) or failures >= _WRITE_TRIES:
                return None
            pause = min(_LONGEST_WAIT, _pause(failures, error))
            self._notify(f"{error.message}: waiting {pause:.1f} s (try {failures + 1} of {_WRITE_TRIES})")
            return pause

        return retry(lambda: self._call(call, _WRITE_SECONDS), backoff, self._sleep)

    @contextmanager
    def http(self) -> Iterator[httpx.Client]:
        """Open an HTTP client for what the SDK cannot do; its errors become `RectoError`s."""
        _ = self.client  # raises an error if the extra is missing
        import httpx

        def check(response: httpx.Response) -> None:
            if response.is_error:
                response.read()
                response.raise_for_status()

        headers = {"api-key": self._api_key} if self._api_key else {}
        hooks = {"response": [check]}
        try:
            with httpx.Client(
                base_url=self.url, headers=headers, timeout=_WRITE_SECONDS, event_hooks=hooks
            ) as client:
                yield client
        except httpx.HTTPStatusError as error:
            raise self._status_error(error.response.status_code, _server_message(error.response)) from None
        except httpx.HTTPError as error:
            raise self._to_recto_error(error) from None

    def close(self) -> None:
        """Close the connections."""
        if self._client is not None:
            self._client.close()
            self._client = None

    async def aclose(self) -> None:
        """Close the running event loop's connections."""
        client = self._async_clients.pop()
        if client is not None:
            await client.close()

    def _call(self, call: Callable[[QdrantClient], Result], seconds: float) -> Result:
        client = self.client
        try:
            return with_timeout(lambda: call(client), seconds)
        except Exception as error:  # noqa: BLE001 - the SDK raises errors of several packages
            # Not `from error`: its text may contain the key.
            raise self._to_recto_error(error) from None

    def _to_recto_error(self, error: Exception) -> RectoError:
        if isinstance(error, RectoError):
            return error
        status = getattr(error, "status_code", None)
        retry_after = getattr(error, "retry_after_s", None)
        if retry_after is not None or status == 429:
            return TransientError(
                "Qdrant's rate limit is reached",
                hint=f"Try again in {retry_after} s." if retry_after else "Try again in a minute.",
                retry_after=None if retry_after is None else float(retry_after),
            )
        if isinstance(status, int):
            return self._status_error(status, _server_message(error))
        name = type(getattr(error, "source", error)).__name__
        if isinstance(error, DeadlineExceeded) or "Timeout" in name:
            message = f"Qdrant at {self.url} did not answer in time"
            hint = "Try again; a large collection may be loading."
        elif any(part in name for part in ("Connect", "Protocol", "Network")):
            message = f"Cannot connect to Qdrant at {self.url}"
            hint = (
                "Is the server running? Check QDRANT_URL."
                if is_local_address(self.url)
                else "Check QDRANT_URL and the network. "
                "A free cluster that was idle for long must be resumed in the Qdrant Cloud console."
            )
        elif any(part in name for part in ("Read", "Write", "Close")):
            message, hint = f"The connection to Qdrant at {self.url} broke", "Try again."
        else:
            message = f"The answer from {self.url} cannot be understood"
            hint = "Is it a Qdrant server? Check QDRANT_URL."
        return TransientError(message, hint=hint)

    def _status_error(self, status: int, text: str) -> RectoError:
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


def _read_backoff(failures: int, error: Exception) -> float | None:
    """Return the pause before the next try of a read; give up if the server asks for a long one."""
    if not isinstance(error, TransientError) or failures >= _READ_TRIES:
        return None
    pause = _pause(failures, error)
    return pause if pause <= _READ_SECONDS else None


def _pause(failures: int, error: TransientError) -> float:
    return error.retry_after if error.retry_after is not None else _FIRST_WAIT * 2 ** (failures - 1)


def _server_message(error: Any) -> str:
    try:
        body = error.structured() if hasattr(error, "structured") else error.json()
        said = body["status"]["error"]
    except (ValueError, LookupError, TypeError, AttributeError):  # the body is not Qdrant's JSON
        said = getattr(error, "content", b"") or b""
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else str(said)
    return " ".join(re.sub(r"<[^>]*>", " ", text).split())[:300] or "no reason given"
