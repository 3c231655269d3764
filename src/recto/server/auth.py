"""Who may ask what we serve: keys, compared in a time that says nothing of them, and addresses that only this machine can reach."""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from hashlib import sha256

from recto.errors import ConfigurationError

VARIABLE = "RECTO_API_KEY"


class Keys:
    """Tells whose key a request has."""

    def __init__(self, keys: tuple[str, ...]) -> None:
        self._digests = [_digest(key) for key in keys]

    def __bool__(self) -> bool:
        """Whether a key is needed at all."""
        return bool(self._digests)

    def holder(self, authorization: str) -> int:
        """Return the number of the key, from 1, or 0 if it is none of them; all are compared, whatever matches."""
        scheme, _, given = authorization.partition(" ")
        digest = _digest(given.strip()) if scheme.lower() == "bearer" else b""
        found = 0
        for number, one in enumerate(self._digests, 1):
            found += number * hmac.compare_digest(digest, one)
        return found


def api_keys(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the configured keys; several are separated by commas."""
    keys = tuple(dict.fromkeys(key.strip() for key in values.get(VARIABLE, "").split(",") if key.strip()))
    if any(not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise ConfigurationError(
            f"{VARIABLE} has characters that a header cannot carry",
            hint="Use letters and digits; separate several keys by commas.",
        )
    return keys


def is_loopback(host: str) -> bool:
    """Tell whether a name or address to listen on is of this machine alone."""
    name = host.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def unguarded(host: str, way_out: str) -> ConfigurationError:
    """Return the error for an address that other machines can reach while nobody needs a key."""
    return ConfigurationError(
        f"{host} can be reached from other machines, and there is no {VARIABLE}",
        hint=f"Set {VARIABLE} to a long random text, {way_out}.",
    )


def _digest(key: str) -> bytes:
    return sha256(key.encode("utf-8", "surrogateescape")).digest()
