"""Who may ask, from where, and what browsers may do with the answers."""

from __future__ import annotations

from collections.abc import Mapping

from recto.access import is_loopback
from recto.bounds import Refusal
from recto.http.options import ServeOptions

OPEN_PATHS = ("/healthz", "/", "/favicon.ico")
STATIC = "/static/"

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = tuple(
    (name.encode(), value.encode())
    for name, value in {
        "content-security-policy": _POLICY,
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=()",
    }.items()
)

_EXPOSED = b"x-request-id, retry-after"
_UNAUTHORISED = Refusal(
    401, "This service wants a key", "Send the header `Authorization: Bearer KEY`.", (("WWW-Authenticate", 'Bearer realm="recto"'),)
)
_WRONG_HOST = Refusal(
    400, "This service does not answer to that host name", "Ask it by the name it listens on; --allowed-host adds others."
)


def is_open(path: str) -> bool:
    """Whether a path needs no key."""
    return path in OPEN_PATHS or path.startswith(STATIC)


def unauthorised() -> Refusal:
    """Return the answer to a request without a right key."""
    return _UNAUTHORISED


class Hosts:
    """Refuses names that the service is not known by: on loopback, a web page elsewhere could else reach it by a name of its own."""

    def __init__(self, options: ServeOptions) -> None:
        self._known = frozenset(options.hosts)
        self._loopback = not options.is_public
        self._own = options.host.lower().strip("[]")

    def check(self, headers: Mapping[str, str]) -> Refusal | None:
        """Return why a request is refused, if it is."""
        if not self._loopback and not self._known:
            return None
        name = _hostname(headers.get("host", ""))
        if name in self._known or (self._loopback and (is_loopback(name) or name == self._own)):
            return None
        return _WRONG_HOST


class Origins:
    """Lets web pages of listed origins ask from a browser; of all others a browser hides the answer."""

    def __init__(self, origins: tuple[str, ...]) -> None:
        self._origins = frozenset(origins)

    def headers(self, origin: str) -> list[tuple[bytes, bytes]]:
        """Return what an answer to a page of an origin carries."""
        if not self._origins:
            return []
        found = [(b"vary", b"Origin")]
        if origin.lower() in self._origins:
            found += [(b"access-control-allow-origin", origin.encode("latin-1")), (b"access-control-expose-headers", _EXPOSED)]
        return found

    def preflight(self, method: str, headers: Mapping[str, str]) -> dict[str, str] | None:
        """Return the answer to a browser that asks whether it may ask, or None if this is no such question."""
        if method != "OPTIONS" or "access-control-request-method" not in headers or headers.get("origin", "").lower() not in self._origins:
            return None
        return {
            "access-control-allow-methods": "GET, POST",
            "access-control-allow-headers": "authorization, content-type, x-request-id",
            "access-control-max-age": "600",
        }


def _hostname(host: str) -> str:
    """Return the name in a Host header, without the port."""
    host = host.strip().lower()
    if host.startswith("["):
        return host.partition("]")[0] + "]"
    return host.partition(":")[0]
