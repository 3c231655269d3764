"""Test keys, host names, origins, and security headers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recto.errors import ConfigurationError
from recto.server.http import ServeOptions, serve_options
from recto.settings import Settings, is_loopback
from tests.running import recto
from tests.server.http.service import Service

KEY, OTHER = "first-key-0123456789", "second-key-9876543210"
BOOK, EVIL = "https://book.example.org", "https://evil.example"
PREFLIGHT = {"Origin": BOOK, "Access-Control-Request-Method": "POST"}


@pytest.fixture(scope="module")
def locked(house_settings: Settings) -> Iterator[Service]:
    """Requires a key, and accepts one more host name and one origin."""
    options = ServeOptions(keys=(KEY, OTHER), hosts=("search.example.org",), origins=(BOOK,))
    with Service(house_settings, options) as service:
        yield service


def test_wrong_and_right_keys(locked: Service) -> None:
    wrong = ["", "Bearer", "Bearer ", f"Basic {KEY}", KEY, f"Bearer {KEY}x", f"Bearer {KEY[:-1]}"]
    for given in (*wrong, f"Bearer {KEY},{OTHER}", "Bearer \xff\xfe", "x" * 9000):
        refused = locked.post("/retrieve", {"query": "beans"}, Authorization=given)
        assert (refused.status, refused.error) == (401, "An API key is required")
        assert refused.headers["www-authenticate"].startswith("Bearer")
    for given in (f"Bearer {KEY}", f"Bearer {OTHER}", f"bearer  {KEY}"):
        assert locked.post("/retrieve", {"query": "beans"}, Authorization=given).status == 200
        assert locked.get("/nope", Authorization=given).status == 404


def test_path_tricks_do_not_avoid_the_key(locked: Service) -> None:
    for path in ("/static/../", "/static/..%2F", "//", "/%2e/", "/healthz/../"):
        assert locked.get(f"{path}v1/modules").status in (401, 404), path


def test_only_local_host_names_are_accepted_on_loopback(locked: Service) -> None:
    local = ("localhost", "LOCALHOST:8000", "127.0.0.1:8000", "[::1]:8000", "recto.localhost")
    for host in (*local, "search.example.org"):
        assert locked.get("/healthz", Host=host).status == 200, host
    for host in ("evil.example.org", "localhost.evil.example.org", "127.0.0.1.evil.org", "192.168.0.1", ""):
        reply = locked.get("/healthz", Host=host)
        assert (reply.status, reply.error) == (400, "This service does not accept that host name"), host


def test_hosts_of_a_public_server(house_settings: Settings) -> None:
    """Load balancers send the address of the machine to probes; every other path checks the host first."""
    assert ServeOptions(host="0.0.0.0").accepted_hosts == []
    options = ServeOptions(host="0.0.0.0", keys=(KEY,), hosts=("search.example.org",))
    assert options.accepted_hosts == ["search.example.org"]
    with Service(house_settings, options) as service:
        for path, status in {"/healthz": 200, "/readyz": 200, "/metrics": 400, "/": 400}.items():
            assert service.ask("GET", path, headers={"Host": "10.0.0.7:8000"}).status == status, path


def test_requests_of_other_sites_are_refused(house_settings: Settings) -> None:
    cross, same = ({"Sec-Fetch-Site": f"{one}-site"} for one in ("cross", "same"))
    with Service(house_settings, ServeOptions(origins=(BOOK,))) as service:
        own = {"Origin": f"http://127.0.0.1:{service.port}"}
        for headers in (cross, cross | {"Origin": EVIL}, same, {"Origin": EVIL}, {"Origin": "null"}):
            for path in ("/v1/collections", "/metrics"):
                assert service.get(path, **headers).status == 403, headers
        allowed = [own, cross | {"Origin": BOOK}, same | {"Origin": BOOK}, {"Sec-Fetch-Site": "none"}]
        for headers in (*allowed, dict[str, str](), {"Sec-Fetch-Site": "same-origin"}):
            for path in ("/v1/collections", "/metrics"):
                assert service.get(path, **headers).status == 200, headers
        assert service.get("/", **cross).status == 200, "a link to the page works"


def test_readiness_without_a_key_tells_nothing_else(locked: Service, home: Path) -> None:
    for key in ("", f"Bearer {KEY}", "Bearer wrong"):
        assert locked.get("/readyz", Authorization=key).json() == {"status": "ready"}
    empty = Settings("local", "edge", home, collection="secret-book")
    with Service(empty, ServeOptions(keys=(KEY,))) as service:
        reply = service.get("/readyz")
        assert (reply.status, reply.json()) == (503, {"status": "not ready"})
        assert int(reply.headers["retry-after"]) > 0
        assert "secret-book" not in str(reply.headers)
        assert service.get("/healthz").status == 200
        asked = service.post("/retrieve", {"query": "robot"}, Authorization=f"Bearer {KEY}")
        assert asked.status == 404


def test_headers_for_browsers(locked: Service) -> None:
    for path in ("/healthz", "/readyz", "/static/nope"):
        headers = locked.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy, "nothing from elsewhere"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "server" not in headers


def test_no_origin_is_allowed_by_default(service: Service) -> None:
    reply = service.ask("OPTIONS", "/v1/search", headers=PREFLIGHT)
    assert reply.status == 403
    assert "--cors-origin" in reply.json()["hint"]
    assert not [name for name in reply.headers if name.startswith("access-control")]


def options(environment: dict[str, str] | None = None, **changed: Any) -> ServeOptions:
    return serve_options(environment or {}, **changed)


def test_a_public_address_requires_a_key() -> None:
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org", "", "127.0.0.1.example.org"):
        with pytest.raises(ConfigurationError, match="RECTO_API_KEY"):
            options(host=host)
        assert options({"RECTO_API_KEY": KEY}, host=host).keys == (KEY,)
        assert options(host=host, has_stored_keys=True, rate=600).warnings() == []
        (warning,) = options(host=host, has_stored_keys=True).warnings()
        assert "set --rate" in warning
        assert len(options(host=host, allow_public=True).warnings()) == 2
    for host in ("127.0.0.1", "localhost", "::1", "[::1]", "127.8.9.1"):
        assert is_loopback(host)
        assert options(host=host).warnings() == []


def test_options_from_the_environment() -> None:
    combined = options(
        {
            "RECTO_API_KEY": f" {KEY} , {OTHER},",
            "RECTO_COLLECTIONS": "a,b",
            "RECTO_ALLOWED_HOSTS": "Search.Example.org",
            "RECTO_CORS_ORIGINS": BOOK,
            "RECTO_RATE_LIMIT": "60",
            "RECTO_TRUSTED_PROXIES": "10.0.0.0/8, ::1",
        }
    )
    assert (combined.keys, combined.collections) == ((KEY, OTHER), ("a", "b"))
    assert (combined.hosts, combined.origins) == (("search.example.org",), (BOOK,))
    assert combined.rate == 60
    assert [str(network) for network in combined.proxies] == ["10.0.0.0/8", "::1/128"]
    assert KEY not in repr(combined)
    flags = options({"RECTO_COLLECTIONS": "a"}, collections=("c", "d"))
    assert (flags.collections, flags.default) == (("c", "d"), "c"), "flags win, and the first is the default"
    assert combined.default == options().default == "humanoid_robotics_book"


@pytest.mark.parametrize(
    "setting",
    [
        *("API_KEY=with space in it", "API_KEY=schlüssel-0123456789", "API_KEY=recto_pk_0123456789"),
        *("TRUSTED_PROXIES=everyone", "RATE_LIMIT=many", "RATE_LIMIT=-1", "CORS_ORIGINS=*"),
        "ALLOWED_HOSTS=https://example.org",
    ],
)
def test_invalid_options_in_the_environment(setting: str) -> None:
    name, _, value = setting.partition("=")
    with pytest.raises(ConfigurationError) as caught:
        options({f"RECTO_{name}": value})
    assert caught.value.hint
    assert name != "API_KEY" or value not in str(caught.value)


def test_the_command_exits_with_2(home: Path) -> None:
    done = recto(home, "serve", "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 2
    assert "RECTO_API_KEY is not set" in done.stderr
