"""The connection to a Qdrant server: time limits, retries, and `RectoError`s for every failure."""

from __future__ import annotations

import math
import re
import threading
import time
import warnings
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, TypeVar
from urllib.parse import urlsplit, urlunsplit

import httpx
from qdrant_client import AsyncQdrantClient, QdrantClient

from recto._util.http import bounded
from recto._util.retry import Call, ClientPerLoop, DeadlineExceeded, Steps, arun, redacted, retried, run
from recto.errors import CollectionMissing, ConfigurationError, FingerprintMismatch, RectoError, Unreachable
from recto.plugins import Notify
from recto.settings import is_local_address, split_addresses

Result = TypeVar("Result")

_PORT = 6333  # the SDK's default
_LARGEST_RESPONSE = 256 << 20  # bytes; a page of points with vectors has some ten MB
# A reader waits for a search, so reads give up early. A writer would have to start again, so writes do not.
_READ_TRIES, _WRITE_TRIES = 3, 6
_READ_SECONDS, _WRITE_SECONDS = 5.0, 60.0
_READ_FAILOVER_SECONDS = 2.5  # of a try while another node is left
_WRITE_FAILOVER_SECONDS = 30.0  # a cluster needs 20 s to create a collection while a node hangs
_READ_DEADLINE = 10.0  # seconds for all tries of a read that several nodes can answer
_LEAST_SECONDS = 0.5  # of a try that begins just before the deadline
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 60.0  # seconds; each wait is twice as long as the one before
_PROBE_SECONDS = 2.0  # `recto doctor` asks all nodes at once
_AVOID_SECONDS = 30.0  # after a failure of a node
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


class NodeUnavailable(TransientError):
    """A node does not answer; another one may."""


class _ReadTries:
    """Which node a read tries next, for how long, and when it gives up.

    With several nodes, all tries together have a deadline. A collection that one node does not know is looked
    for on all of them.
    """

    def __init__(self, order: Callable[[], list[Node]]) -> None:
        self._order = order
        self._nodes = order()
        self._end = time.monotonic() + (_READ_DEADLINE if len(self._nodes) > 1 else math.inf)

    def next(self) -> tuple[Node, float]:
        """Return the next node and its time limit, which is shorter while other nodes are left."""
        self._nodes = self._nodes or self._order()
        node = self._nodes.pop(0)
        limit = _READ_FAILOVER_SECONDS if self._nodes else _READ_SECONDS
        return node, max(_LEAST_SECONDS, min(limit, self._end - time.monotonic()))

    def pause(self, failures: int, error: Exception) -> float | None:
        """Return the pause before the next try; give up if the server asks for a long one."""
        if time.monotonic() >= self._end:
            return None
        if _can_fail_over(error, self._nodes):
            return 0.0
        if not isinstance(error, TransientError) or failures >= _READ_TRIES:
            return None
        pause = _pause(failures, error)
        return pause if pause <= _READ_SECONDS else None


class Node:
    """One address of a server, with its clients, and when it failed last."""

    def __init__(self, url: str, api_key: str) -> None:
        self.url = url
        self.failed_at = -math.inf
        self._api_key = api_key
        self._clients: dict[float, QdrantClient] = {}
        self._async_clients = ClientPerLoop(lambda: self._make_client(AsyncQdrantClient, _READ_SECONDS))
        self._connecting = threading.Lock()

    def client(self, seconds: float = _READ_SECONDS) -> QdrantClient:
        """Return the client with this timeout.

        A call that is no longer waited for occupies a thread until its timeout ends it.
        """
        with self._connecting:
            if seconds not in self._clients:
                self._clients[seconds] = self._make_client(QdrantClient, seconds)
            return self._clients[seconds]

    def async_client(self) -> AsyncQdrantClient:
        """Return the running event loop's client."""
        return self._async_clients.get()

    def is_ready(self) -> bool:
        """Return whether the node answers and has caught up with its cluster."""
        try:
            return httpx.get(f"{self.url}/readyz", timeout=_PROBE_SECONDS).is_success
        except (httpx.HTTPError, httpx.InvalidURL):
            return False

    def close(self) -> None:
        """Close the connections."""
        with self._connecting:
            clients, self._clients = self._clients, {}
        for client in clients.values():
            client.close()

    async def aclose(self) -> None:
        """Close the running event loop's connections."""
        client = self._async_clients.pop()
        if client is not None:
            await client.close()

    def _make_client(self, kind: Callable[..., Result], seconds: float) -> Result:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about a key over http: `ServerConnection` gives its own warning
            return kind(
                url=self.url,
                api_key=self._api_key or None,
                timeout=int(seconds),
                check_compatibility=False,
                **bounded(_LARGEST_RESPONSE, seconds, is_async=kind is AsyncQdrantClient),
            )


class ServerConnection:
    """Calls a server and retries after transient errors: reads up to 3 times, writes up to 6 times.

    With several addresses, the next try goes to another node at once. A node that failed is avoided for a
    while. A node that has just come back may not know a new collection yet, so a missing collection is looked
    for on all nodes.
    """

    def __init__(
        self, url: str, api_key: str, notify: Notify, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        urls = split_addresses(url)
        plain = [url for url in urls if urlsplit(url).scheme == "http"] if api_key else []
        if not all(map(is_local_address, plain)):
            raise ConfigurationError(
                "QDRANT_API_KEY would be sent over plain http",
                hint="Use https in QDRANT_URL, or leave the key out.",
            )
        if plain:
            notify(
                f"[WARNING] QDRANT_API_KEY is sent over plain http to {', '.join(plain)}, "
                "which is on this machine or a private network"
            )
        self.url = ", ".join(urls)
        self.nodes = tuple(Node(with_port(url), api_key) for url in urls)
        self._api_key = api_key
        self.notify = notify
        self._sleep = sleep
        self._preferred = self.nodes[0]

    @property
    def client(self) -> QdrantClient:
        """The client of the Qdrant SDK for the node that answered last."""
        return self._preferred.client()

    def read(self, call: Callable[..., Result], *args: Any, **options: Any) -> Result:
        """Call a method of the client with these arguments, up to three times."""
        result: Result = run(self._read(), lambda node: call(node.client(), *args, **options), self._sleep)
        return result

    def read_from(self, node: Node, call: Callable[[QdrantClient], Result]) -> Result:
        """Call one node, once."""
        result: Result = run(self._call(node, _READ_SECONDS), lambda node: call(node.client()), self._sleep)
        return result

    async def aread(self, call: Callable[..., Awaitable[Result]], *args: Any, **options: Any) -> Result:
        """Await a call of the server, up to three times."""
        return await arun(self._read(), lambda node: call(node.async_client(), *args, **options))

    def _read(self) -> Steps[Any]:
        tries = _ReadTries(self._order)
        return retried(lambda: self._call(*tries.next()), tries.pause)

    def scroll(self, collection: str, limit: int, **options: Any) -> Iterator[Any]:
        """Yield all points of a collection, or the ones that a filter in `options` selects."""
        offset: Any = None
        while True:
            records, offset = self.read(
                QdrantClient.scroll, collection, limit=limit, offset=offset, **options
            )
            yield from records
            if offset is None:
                return

    def write(self, call: Callable[..., Result], *args: Any, **options: Any) -> Result:
        """Call each node of the server up to six times, and notify the user of every wait."""
        nodes = self._order()

        def attempt() -> Steps[Any]:
            nodes.extend([] if nodes else self._order())
            node = nodes.pop(0)
            return self._call(node, _WRITE_FAILOVER_SECONDS if nodes else _WRITE_SECONDS)

        def backoff(failures: int, error: Exception) -> float | None:
            if _can_fail_over(error, nodes) and isinstance(error, RectoError):
                self.notify(f"{error.message}: trying {nodes[0].url}")
                return 0.0
            rounds = -(-failures // len(self.nodes))
            if not isinstance(error, TransientError) or rounds >= _WRITE_TRIES:
                return None
            pause = min(_LONGEST_WAIT, _pause(rounds, error))
            self.notify(f"{error.message}: waiting {pause:.1f} s (try {rounds + 1} of {_WRITE_TRIES})")
            return pause

        def send(node: Node) -> Result:
            return call(node.client(_WRITE_SECONDS), *args, **options)

        result: Result = run(retried(attempt, backoff), send, self._sleep)
        return result

    def close(self) -> None:
        """Close the connections."""
        for node in self.nodes:
            node.close()

    async def aclose(self) -> None:
        """Close the running event loop's connections."""
        for node in self.nodes:
            await node.aclose()

    def _order(self) -> list[Node]:
        """Return the nodes that a call tries, the last one that answered first; all if all have failed."""
        avoided = time.monotonic() - _AVOID_SECONDS
        up = [node for node in self.nodes if node.failed_at < avoided] or self.nodes
        return sorted(up, key=lambda node: node is not self._preferred)

    def _call(self, node: Node, seconds: float) -> Steps[Any]:
        """Call a node; the SDK raises errors of several packages."""
        reply = yield Call({"node": node}, seconds)
        if isinstance(reply, Exception):
            raise self._failed(node, reply) from None  # not `from reply`: its text may contain the key
        self._preferred = node
        return reply

    def _failed(self, node: Node, error: Exception) -> RectoError:
        """Return the error to raise, and avoid a node that does not answer."""
        failure = self._to_recto_error(node.url, error)
        if isinstance(failure, NodeUnavailable) and len(self.nodes) > 1:
            node.failed_at = time.monotonic()
            if all(other.failed_at > node.failed_at - _AVOID_SECONDS for other in self.nodes):
                failure.hint = f"No node answers: {self.url}. {failure.hint}"
        return failure

    def _to_recto_error(self, url: str, error: Exception) -> RectoError:
        if isinstance(error, RectoError):
            return error
        status = getattr(error, "status_code", None)
        retry_after = getattr(error, "retry_after_s", None)
        if retry_after is not None or status == 429:
            return _rate_limited(None if retry_after is None else float(retry_after))
        if isinstance(status, int):
            return self._status_error(url, status, _server_message(error))
        name = type(getattr(error, "source", error)).__name__
        if isinstance(error, DeadlineExceeded) or "Timeout" in name:
            message = f"Qdrant at {url} did not answer in time"
            hint = "Try again; a large collection may be loading."
        elif any(part in name for part in ("Connect", "Protocol", "Network")):
            message = f"Cannot connect to Qdrant at {url}"
            hint = (
                "Is the server running? Check QDRANT_URL."
                if is_local_address(url)
                else "Check QDRANT_URL and the network. "
                "A free cluster that was idle for long must be resumed in the Qdrant Cloud console."
            )
        elif any(part in name for part in ("Read", "Write", "Close")):
            message, hint = f"The connection to Qdrant at {url} broke", "Try again."
        else:
            message = f"The answer from {url} cannot be understood"
            return TransientError(message, hint="Is it a Qdrant server? Check QDRANT_URL.")
        return NodeUnavailable(message, hint=hint)

    def _status_error(self, url: str, status: int, text: str) -> RectoError:  # noqa: PLR0911 - a table
        text = redacted(text, self._api_key)
        if status == 403 and text.startswith("Forbidden"):
            return ConfigurationError(
                f"The key in QDRANT_API_KEY does not allow this: {text}",
                hint="A read-only key can search. To index a book, use a key that can write.",
            )
        if status in (401, 403):
            return ConfigurationError(
                f"Qdrant refuses the key in QDRANT_API_KEY: {text}",
                hint="Check the key, and that it is a key of this cluster.",
            )
        if match := _INDEX_REQUIRED.search(text):
            return IndexRequired(match[1])
        if status == 404:
            return CollectionMissing(
                f"Qdrant at {url} says: {text}",
                hint="Check QDRANT_URL and COLLECTION_NAME, or run `recto index PATH`.",
            )
        if "dimension error" in text:
            return FingerprintMismatch(
                f"The vectors do not fit the collection: {text}", hint="Check the embedding model."
            )
        if status >= 500:
            return NodeUnavailable(
                f"Qdrant at {url} is not available ({status})", hint="Try again in a moment."
            )
        return ConfigurationError(
            f"Qdrant at {url} refuses the request ({status}): {text}", hint="`RECTO_DEBUG=1` shows more."
        )


def with_port(url: str) -> str:
    """Return an address with the port that the SDK uses if there is none, so that all clients agree."""
    parts = urlsplit(url)
    return url if parts.port else urlunsplit(parts._replace(netloc=f"{parts.netloc}:{_PORT}"))


def _can_fail_over(error: Exception, nodes: list[Node]) -> bool:
    """Return whether another node may answer; it may also know a collection that is missing here."""
    return bool(nodes) and isinstance(error, TransientError | CollectionMissing)


def _pause(failures: int, error: TransientError) -> float:
    return error.retry_after if error.retry_after is not None else _FIRST_WAIT * 2 ** (failures - 1)


def _rate_limited(retry_after: float | None) -> TransientError:
    return TransientError(
        "Qdrant's rate limit is reached",
        hint=f"Try again in {retry_after:g} s." if retry_after else "Try again in a minute.",
        retry_after=retry_after,
    )


def _server_message(error: Any) -> str:
    try:
        body = error.structured() if hasattr(error, "structured") else error.json()
        reason = body["status"]["error"]
    except (ValueError, LookupError, TypeError, AttributeError):  # the body is not Qdrant's JSON
        reason = getattr(error, "content", b"") or b""
    text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
    return " ".join(re.sub(r"<[^<>]*+>", " ", text).split())[:300] or "no reason given"
