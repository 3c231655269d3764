"""Stored API keys: `recto keys` writes them, and running services read them again when they change.

Only the SHA-256 of a key is stored. A key has 256 random bits, so nobody can find it by trying; slow password
hashes and salts protect texts that people choose, and would cost time in every request.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, get_args

from recto._util.files import WriterLock, disk_errors, make_private, read_limited, replace_text
from recto.errors import ConfigurationError, InvalidArgument, other_format
from recto.settings import check_collection_name

KeyScope = Literal["search", "admin"]
KeyState = Literal["active", "expired", "revoked"]
PREFIXES: dict[KeyScope, str] = {"search": "recto_pk_", "admin": "recto_sk_"}
"""How keys begin, so that people and secret scanners recognise them: publishable and secret."""

KEY_FORMAT = 1
MAX_FILE = 1 << 20  # about 3 000 keys
_KEPT_REVOKED = 100  # users of older ones get the error for an unknown key
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]{0,63}")
_LABEL = r"[a-z0-9](?:[a-z0-9_-]*[a-z0-9])?"
_ORIGIN = re.compile(rf"(https?)://(\[[0-9a-f:.]+\]|{_LABEL}(?:\.{_LABEL})*)(?::([0-9]{{1,5}}))?")
_LAST_PORT = 65_535
_DEFAULT_PORTS = {"http": "80", "https": "443"}


@dataclass(frozen=True, slots=True)
class Key:
    """An API key without its text.

    Without `origins`, browsers need an origin that the service allows for all; without `collections`, the key
    is for all. `expires` is the last day on which the key is valid, in UTC.
    """

    name: str
    scope: KeyScope
    digest: str = field(default="", repr=False)
    origins: tuple[str, ...] = ()
    collections: tuple[str, ...] = ()
    created_at: str = ""
    expires: str = ""
    revoked_at: str = ""

    @property
    def state(self) -> KeyState:
        """Whether the key can be used."""
        if self.revoked_at:
            return "revoked"
        return "expired" if self.expires and self.expires < _today() else "active"

    def to_dict(self) -> dict[str, Any]:
        """Return what people may see of the key."""
        public = {name: value for name, value in asdict(self).items() if name != "digest"}
        return {**public, "state": self.state}


def digest(key: str) -> str:
    """Return the digest of a key that is stored and compared."""
    return sha256(key.encode("utf-8", "surrogateescape")).hexdigest()


def key_file(home: Path) -> Path:
    """Return the path of the file with the keys."""
    return home / "keys.json"


def read_keys(home: Path) -> tuple[Key, ...]:
    """Return all keys, also those that can no longer be used; raise an error if the file is not valid."""
    path = key_file(home)
    try:
        data = json.loads(read_limited(path, MAX_FILE))
        version = data["format"]
        if type(version) is not int:
            raise ValueError("format is not a number")
        if version != KEY_FORMAT:
            raise other_format(str(path), version, KEY_FORMAT, "Create the keys again.")
        return tuple(_parse(entry) for entry in data["keys"])
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigurationError(
            f"The keys in {path} cannot be read: {error}",
            hint="Restore the file from a backup, or delete it and create the keys again.",
        ) from error


def _parse(entry: Any) -> Key:
    values: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in entry.items()
    }
    key = Key(**values)
    for name in Key.__dataclass_fields__:
        value = getattr(key, name)
        texts = value if name in ("origins", "collections") else (value,)
        if not isinstance(texts, tuple) or not all(isinstance(text, str) for text in texts):
            raise ValueError(f"{name} is not valid")
    # An unknown scope or a search key without collections must never mean "everything".
    if key.scope not in get_args(KeyScope) or (key.scope == "search") != bool(key.collections):
        raise ValueError(f"the scope of {key.name!r} is not valid")
    return key


def add_key(
    home: Path,
    name: str,
    scope: KeyScope,
    origins: Iterable[str] = (),
    collections: Iterable[str] = (),
    expires: str = "",
) -> tuple[Key, str]:
    """Create a key; return it with its text, which is stored nowhere."""
    key = Key(
        name,
        scope,
        origins=tuple(dict.fromkeys(map(check_origin, origins))),
        collections=tuple(dict.fromkeys(collections)),
        created_at=_now(),
        expires=expires,
    )
    _check(key)
    text = PREFIXES[scope] + secrets.token_urlsafe(32)
    key = replace(key, digest=digest(text))
    with _changing(home) as keys:
        if any(other.name == name and not other.revoked_at for other in keys):
            raise InvalidArgument(
                f"There is already a key '{name}'",
                hint=f"Choose another name, or run: recto keys revoke {name}",
            )
        keys[:] = [*(other for other in keys if other.name != name), key]
    return key, text


def revoke_key(home: Path, name: str) -> Key:
    """Make a key unusable, and return it; it stays in the list, so that its users get a clear error."""
    with _changing(home) as keys:
        for position, key in enumerate(keys):
            if key.name == name and not key.revoked_at:
                keys[position] = revoked = replace(key, revoked_at=_now())
                return revoked
        raise InvalidArgument(
            f"There is no key '{name[:80]}' to revoke", hint="`recto keys list` shows the keys."
        )


def check_origin(origin: str) -> str:
    """Return an origin as browsers write it; raise an error if it is not one."""
    match = _ORIGIN.fullmatch(origin.lower())
    if not match or not 0 < int(match[3] or 1) <= _LAST_PORT:
        raise ConfigurationError(
            f"{origin[:80]!r} is not an origin", hint="Write it as https://book.example.org, without a path."
        )
    scheme, host, port = match.groups()
    return f"{scheme}://{host}" if port in (None, _DEFAULT_PORTS[scheme]) else f"{scheme}://{host}:{port}"


def _check(key: Key) -> None:
    if not _NAME.fullmatch(key.name):
        raise InvalidArgument(
            f"{key.name[:80]!r} is not a name for a key",
            hint="Use at most 64 letters, digits, '.', '_' and '-', and start with a letter.",
        )
    if key.scope == "search" and not key.collections:
        raise InvalidArgument(
            "A search key needs --collection", hint="Name each collection that the key may search."
        )
    if key.scope == "admin" and (key.collections or key.origins):
        raise InvalidArgument(
            "An admin key is for all collections, and not for browsers",
            hint="Leave out --collection and --origin, or use --scope search.",
        )
    for name in key.collections:
        check_collection_name(name, "--collection")
    if key.expires:
        try:
            day = date.fromisoformat(key.expires)
        except ValueError:
            day = date.min
        if day.isoformat() != key.expires or key.expires < _today():
            raise InvalidArgument(
                f"--expires is not a day in the future: {key.expires[:40]!r}",
                hint="Write the last day on which the key is valid as 2027-12-31.",
            )


@contextmanager
def _changing(home: Path) -> Iterator[list[Key]]:
    """Lock the file, and write the list of keys when the block ends without an error."""
    path = key_file(home)
    with disk_errors(home):
        make_private(home)
        with WriterLock(path.with_suffix(".lock"), "The file of the keys", wait=lambda _: None):
            keys = list(read_keys(home))
            yield keys
            revoked = sorted(key.revoked_at for key in keys if key.revoked_at)
            oldest = revoked[-_KEPT_REVOKED] if len(revoked) > _KEPT_REVOKED else ""
            kept = [asdict(key) for key in keys if not key.revoked_at or key.revoked_at >= oldest]
            text = json.dumps({"format": KEY_FORMAT, "keys": kept}, indent=1)
            if len(text) > MAX_FILE:
                raise ConfigurationError(
                    f"{path} would be larger than {MAX_FILE >> 10} KiB", hint="Revoke keys that nobody uses."
                )
            replace_text(path, text + "\n")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
