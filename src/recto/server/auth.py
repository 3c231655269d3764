"""API keys: who may use the HTTP API and MCP over HTTP, from which web pages, and for which collections.

A client sends its key as `Authorization: Bearer KEY` or `X-API-Key: KEY`. Keys come from two places:

- `RECTO_API_KEY` has admin keys, separated by commas. Their names in the log are their positions: 1, 2, …
- `recto keys` writes search keys and admin keys to `keys.json` in the home, as digests only.

| key | paths | collections | web pages |
|---|---|---|---|
| admin | all | all | pages of the service, and pages of `--cors-origin` |
| search, without origins | what a reader's page needs | the collections of the key | the same |
| search, with origins | what a reader's page needs | the collections of the key | pages of these origins |

A service without any key is open: each request may use everything.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from recto.errors import ConfigurationError
from recto.server.keys import PREFIXES, Key, digest, key_file, read_keys
from recto.server.limits import Refusal, Refused, busy

if TYPE_CHECKING:
    from pathlib import Path

VARIABLE = "RECTO_API_KEY"
_LOG = logging.getLogger("recto.server")

_BEARER = (("WWW-Authenticate", 'Bearer realm="recto"'),)
_UNAUTHORIZED = Refusal(
    401, "An API key is required", "Send the header `Authorization: Bearer KEY`.", _BEARER
)
_ENDED = {
    "revoked": Refusal(401, "This API key was revoked", "Ask the operator for a new key.", _BEARER),
    "expired": Refusal(401, "This API key has expired", "Ask the operator for a new key.", _BEARER),
}


class ApiKeys:
    """The keys of a service: the keys in RECTO_API_KEY, and the keys that are stored in a home.

    Stored keys are read again when their file has changed, so a new or revoked key needs no restart. If the
    file cannot be read, no stored key is accepted.
    """

    def __init__(self, keys: Iterable[str], home: Path | None = None, *, was_found: bool = False) -> None:
        """Take the keys of RECTO_API_KEY, a home, and whether it had stored keys when the service started."""
        self._configured = {digest(text): Key(str(number), "admin") for number, text in enumerate(keys, 1)}
        self._stored: dict[str, Key] = {}
        self._home = home
        self._was_found = was_found
        self._is_readable = True
        self._signature: object = None

    def __bool__(self) -> bool:
        """Return whether requests need a key; deleting the file of stored keys must not open the service."""
        self._refresh()
        return bool(self._configured) or self._was_found

    @property
    def origins(self) -> Collection[str]:
        """The origins of all stored keys, even of revoked ones: their pages can read the error."""
        self._refresh()
        return {origin for key in self._stored.values() for origin in key.origins}

    def authenticate(self, headers: Mapping[str, str]) -> Key:
        """Return the key of a request; raise `Refused` if it has no valid key."""
        scheme, _, text = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":  # a proxy may need the header for itself
            text = headers.get("x-api-key", "")
        text = text.strip()
        # The lookup needs no constant time: the digest of a guess says nothing about the digests here.
        sent = digest(text)
        if sent in self._configured:
            return self._configured[sent]
        self._refresh()
        if not self._is_readable and text.startswith(tuple(PREFIXES.values())):
            raise Refused(
                "keys", busy("The service cannot read its keys", "The operator finds the reason in the log.")
            )
        key = self._stored.get(sent)
        if key is None:
            raise Refused("key", _UNAUTHORIZED)
        if key.state != "active":
            raise Refused(key.state, _ENDED[key.state])
        return key

    def _refresh(self) -> None:
        """Read the stored keys again if the size, time or inode of their file has changed."""
        if self._home is None:
            return
        signature: object = None
        try:
            status = key_file(self._home).stat()
            signature = (status.st_mtime_ns, status.st_size, status.st_ino)
        except (FileNotFoundError, NotADirectoryError):
            pass
        except OSError as error:
            signature = error.errno
        if signature == self._signature:
            return
        self._signature = signature
        self._was_found = self._was_found or signature is not None
        try:
            self._stored = {key.digest: key for key in read_keys(self._home)}
            self._is_readable = True
        except ConfigurationError as error:
            _LOG.error("%s %s", error, error.hint)
            self._stored, self._is_readable = {}, False


def api_keys(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the keys of RECTO_API_KEY; raise `ConfigurationError` if one is not valid."""
    keys = tuple(dict.fromkeys(key.strip() for key in values.get(VARIABLE, "").split(",") if key.strip()))
    if any(not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise ConfigurationError(
            f"{VARIABLE} has characters that are not allowed in a header",
            hint="Use letters and digits; separate several keys with commas.",
        )
    if any(key.startswith(PREFIXES["search"]) for key in keys):
        raise ConfigurationError(
            f"{VARIABLE} contains a search key, which readers know",
            hint="Keys of `recto keys` work without this variable: remove the key from it.",
        )
    return keys


def key_required(host: str, alternative: str) -> ConfigurationError:
    """Return the error for a public address without a key."""
    return ConfigurationError(
        f"{host} is reachable from other machines, and {VARIABLE} is not set",
        hint=f"Set {VARIABLE} to a long random text, {alternative}.",
    )


def local_hosts(host: str) -> list[str]:
    """Return the Host headers that a server on a loopback address accepts, against DNS rebinding."""
    address = f"[{host.strip('[]')}]" if ":" in host else host
    return list(dict.fromkeys(("127.0.0.1", "localhost", "*.localhost", "[::1]", address)))


def check_networks(ranges: Iterable[str]) -> tuple[str, ...]:
    """Return the addresses of trusted proxies; raise `ConfigurationError` for an invalid or unsafe one.

    uvicorn would take an invalid range for the name of a socket, and trust nobody.
    """
    networks = []
    for text in ranges:
        try:
            network = ipaddress.ip_network(text)
        except ValueError:
            raise ConfigurationError(
                f"{text[:80]!r} is not a range of addresses",
                hint="Write it as 10.0.0.0/8, 10.1.2.3 or fd00::/8.",
            ) from None
        if not network.prefixlen:
            raise ConfigurationError(
                f"{text[:80]!r} trusts every client to state its own address",
                hint="Name only the addresses of your own proxies.",
            )
        networks.append(str(network))
    return tuple(networks)
