"""The HTTP API: document 002's routes and `/v1`.

This file has the server's options, from flags, the environment and `.env`, checked before anything is opened.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from recto.contracts import HTTP_COLLECTION
from recto.errors import ConfigurationError
from recto.server.auth import api_keys, check_networks, key_required, local_hosts
from recto.server.keys import check_origin
from recto.server.limits import MAX_CONCURRENCY
from recto.settings import check_collection_name, is_loopback

METRICS_DIRECTORY = "PROMETHEUS_MULTIPROC_DIR"
"""Where several workers share their metrics; set it before prometheus_client is imported."""

_SHORT_KEY = 16
_HOST = re.compile(r"[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of the HTTP server; its repr does not show keys.

    `default` is the collection if neither a request nor COLLECTION_NAME names one.
    `rate` is the number of requests per minute for each admin key and client address (0: no limit);
    `timeout` and `drain` are seconds. `has_stored_keys` says whether `recto keys` has made keys before.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    collections: tuple[str, ...] = ()
    default: str = HTTP_COLLECTION
    keys: tuple[str, ...] = field(default=(), repr=False)
    allow_public: bool = False
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    proxies: tuple[str, ...] = ()
    rate: int = 0
    concurrency: int = MAX_CONCURRENCY
    timeout: float = 15.0
    drain: float = 20.0
    has_stored_keys: bool = False

    @property
    def is_public(self) -> bool:
        """Whether other machines can reach the server."""
        return not is_loopback(self.host)

    @property
    def is_open(self) -> bool:
        """Whether everyone who can reach the server can search."""
        return not self.keys and not self.has_stored_keys

    @property
    def accepted_hosts(self) -> list[str]:
        """The Host headers to accept, so that no web page reaches a local service by DNS rebinding."""
        return list(self.hosts) if self.is_public else [*local_hosts(self.host), *self.hosts]

    def warnings(self) -> list[str]:
        """Return what is allowed but unsafe."""
        warnings = []
        if self.is_public and self.is_open:
            warnings.append(f"Anyone who can reach {self.host} can search: RECTO_API_KEY is not set")
        if self.is_public and not self.rate:
            warnings.append("One client can slow the service down for all others: set --rate, such as 600")
        if any(len(key) < _SHORT_KEY for key in self.keys):
            warnings.append(
                f"A key in RECTO_API_KEY has fewer than {_SHORT_KEY} characters: it can be guessed"
            )
        return warnings


def serve_options(
    values: Mapping[str, str],
    *,
    collections: Iterable[str] = (),
    hosts: Iterable[str] = (),
    origins: Iterable[str] = (),
    proxies: Iterable[str] = (),
    rate: int | None = None,
    **others: Any,
) -> ServeOptions:
    """Combine flags and variables; raise `ConfigurationError` for values that are invalid or unsafe."""
    named = _listed(collections, {}, "")
    options = ServeOptions(
        collections=named or _listed((), values, "RECTO_COLLECTIONS"),
        default=named[0] if named else HTTP_COLLECTION,
        keys=api_keys(values),
        hosts=tuple(_checked_host(name) for name in _listed(hosts, values, "RECTO_ALLOWED_HOSTS")),
        origins=tuple(check_origin(name) for name in _listed(origins, values, "RECTO_CORS_ORIGINS")),
        proxies=check_networks(_listed(proxies, values, "RECTO_TRUSTED_PROXIES")),
        rate=_rate(values) if rate is None else rate,
        **others,
    )
    for name in options.collections:
        check_collection_name(name, "--collection")
    if options.is_public and options.is_open and not options.allow_public:
        raise key_required(options.host, "listen on 127.0.0.1, or pass --allow-public")
    return options


def _listed(flags: Iterable[str], values: Mapping[str, str], name: str) -> tuple[str, ...]:
    """Split flags, or else the variable, at commas."""
    parts = ",".join(list(flags) or [values.get(name, "")]).split(",")
    return tuple(dict.fromkeys(part.strip() for part in parts if part.strip()))


def _rate(values: Mapping[str, str]) -> int:
    text = values.get("RECTO_RATE_LIMIT", "").strip() or "0"
    if not re.fullmatch(r"[0-9]{1,7}", text):
        raise ConfigurationError(
            "RECTO_RATE_LIMIT must be a number of requests per minute", hint="Unset it for no limit."
        )
    return int(text)


def _checked_host(name: str) -> str:
    if not _HOST.fullmatch(name):
        raise ConfigurationError(
            f"{name[:80]!r} is not a host name", hint="Write it without scheme and port: search.example.org."
        )
    return name.lower()
