"""API keys and host names: who may use the HTTP API and MCP over HTTP."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from hashlib import sha256

from recto.errors import ConfigurationError
from recto.server.limits import Refusal, Refused

VARIABLE = "RECTO_API_KEY"
_UNAUTHORIZED = Refusal(
    401,
    "An API key is required",
    "Send the header `Authorization: Bearer KEY`.",
    (("WWW-Authenticate", 'Bearer realm="recto"'),),
)


class ApiKeys:
    """Checks keys in constant time."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        """Whether requests need a key."""
        return bool(self._digests)

    def authenticate(self, headers: Mapping[str, str]) -> int:
        """Return the number of the request's key, counted from 1; raise `Refused` if it has no valid key."""
        number = self.find(headers.get("authorization", ""))
        if not number:
            raise Refused("key", _UNAUTHORIZED)
        return number

    def find(self, authorization: str) -> int:
        """Return the number of the key in an Authorization header, or 0; always compare all keys."""
        scheme, _, key = authorization.partition(" ")
        digest = _digest(key.strip()) if scheme.lower() == "bearer" else b""
        return sum(
            number * hmac.compare_digest(digest, known) for number, known in enumerate(self._digests, 1)
        )


def api_keys(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the configured keys; commas separate several."""
    keys = tuple(dict.fromkeys(key.strip() for key in values.get(VARIABLE, "").split(",") if key.strip()))
    if any(not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise ConfigurationError(
            f"{VARIABLE} has characters that are not allowed in a header",
            hint="Use letters and digits; separate several keys with commas.",
        )
    return keys


def is_loopback(host: str) -> bool:
    """Tell whether a host name or address is reachable from this machine only."""
    name = host.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def key_required(host: str, alternative: str) -> ConfigurationError:
    """Return the error for a public address without a key."""
    return ConfigurationError(
        f"{host} is reachable from other machines, and {VARIABLE} is not set",
        hint=f"Set {VARIABLE} to a long random text, {alternative}.",
    )


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogateescape")).digest()
