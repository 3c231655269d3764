"""Bound the responses of services: their bytes, sent and decompressed, and the time that they take."""

from __future__ import annotations

import time
import zlib
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx

BOUNDS = "recto_bounds"
"""The extension of a request with the bytes and the seconds that its response may have."""
_GZIP = 16 + zlib.MAX_WBITS


class ResponseTooLarge(httpx.RequestError):
    """A response has more bytes than what was asked for can have."""


def bounded(limit: int, seconds: float, *, is_async: bool = False) -> dict[str, Any]:
    """Return the arguments of a client whose responses have at most `limit` bytes and take `seconds`.

    A request can have other bounds (`BOUNDS`). A client's own timeouts start again with every byte, and it
    decompresses whatever it receives.
    """

    def bound(response: httpx.Response) -> None:
        most, longest = response.request.extensions.get(BOUNDS, (limit, seconds))
        encoding = response.headers.pop("content-encoding", "")  # the client need not decompress it again
        response.stream = _BoundedStream(response.stream, encoding, most, time.monotonic() + longest)

    async def abound(response: httpx.Response) -> None:
        bound(response)

    return {
        "event_hooks": {"response": [abound if is_async else bound]},
        "headers": {"Accept-Encoding": "gzip"},
    }


def owner_client(
    url: str, headers: dict[str, str], limit: int, seconds: float, *, is_local: bool, is_async: bool
) -> dict[str, Any]:
    """Return the arguments of a bounded client that sends its headers, such as a key, to this server only."""
    options = bounded(limit, seconds, is_async=is_async) | {"follow_redirects": False}
    options["headers"] |= headers
    if is_local:  # a proxy cannot reach it, and must not see the key
        import ssl

        # With SSL_CERT_FILE, which `trust_env` excludes; without TLS, reading certificates takes 50 ms.
        tls = url.startswith("https:")
        options["trust_env"] = False
        options["verify"] = ssl.create_default_context() if tls else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    return options


def chat_client(url: str, key: str, limit: int, seconds: float, *, is_local: bool) -> httpx.AsyncClient:
    """Return a client for the chat model of the owner of Recto, who alone gets the key."""
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    return httpx.AsyncClient(**owner_client(url, headers, limit, seconds, is_local=is_local, is_async=True))


def chat_address(url: str) -> str:
    """Return the address of the chat completions of an OpenAI-compatible server."""
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    if not path.endswith("/chat/completions"):
        path = f"{path or '/v1'}/chat/completions"
    return parts._replace(path=path).geturl()


class _BoundedStream(httpx.SyncByteStream, httpx.AsyncByteStream):
    """The decompressed body of a response."""

    def __init__(self, stream: Any, encoding: str, limit: int, deadline: float) -> None:
        self._stream = stream
        self._encoding = encoding.strip().lower()
        self._limit = self._left = limit
        self._received = 0
        self._deadline = deadline
        self._decoder = zlib.decompressobj(_GZIP) if self._encoding == "gzip" else None

    def __iter__(self) -> Iterator[bytes]:
        parts: Iterable[bytes] = self._stream
        for part in parts:
            yield self._read(part)
        self._check_end()

    async def __aiter__(self) -> AsyncIterator[bytes]:
        parts: AsyncIterable[bytes] = self._stream
        async for part in parts:
            yield self._read(part)
        self._check_end()

    def close(self) -> None:
        """Close the connection."""
        self._stream.close()

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()

    def _read(self, part: bytes) -> bytes:
        if time.monotonic() > self._deadline:
            raise httpx.ReadTimeout("the response takes too long")
        self._received += len(part)
        if self._decoder is not None:
            try:
                part = self._decoder.decompress(part, self._left + 1)
            except zlib.error as error:
                raise httpx.DecodingError(f"the response is not gzip: {error}") from error
            if self._decoder.unused_data:
                raise httpx.DecodingError("the response has more than one gzip stream")
        elif self._encoding not in ("", "identity"):
            raise httpx.DecodingError(f"the response has the encoding {self._encoding[:20]!r}")
        self._left -= len(part)
        if self._left < 0 or self._received > self._limit:
            raise ResponseTooLarge(f"the response has more than {self._limit} bytes")
        return part

    def _check_end(self) -> None:
        if self._decoder is not None and self._received and not self._decoder.eof:
            raise httpx.DecodingError("the response is an incomplete gzip stream")
