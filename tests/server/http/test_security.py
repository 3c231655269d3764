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


@pytest.fixture(scope="module")
def locked(house_settings: Settings) -> Iterator[Service]:
    """Requires a key, and accepts one more host name and one origin."""
    options = ServeOptions(
        keys=(KEY, OTHER), hosts=("search.example.org",), origins=("https://book.example.org",)
    )
    with Service(house_settings, options) as service:
        yield service


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "Bearer ",
        f"Basic {KEY}",
        KEY,
        f"Bearer {KEY}x",
        f"Bearer {KEY[:-1]}",
        f"Bearer {KEY},{OTHER}",
        "Bearer \xff\xfe",
        "x" * 9000,
    ],
)
def test_wrong_keys(locked: Service, given: str) -> None:
    refused = locked.post("/retrieve", {"query": "beans"}, Authorization=given)
    assert (refused.status, refused.error) == (401, "An API key is required")
    assert refused.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("given", [f"Bearer {KEY}", f"Bearer {OTHER}", f"bearer  {KEY}"])
def test_right_keys(locked: Service, given: str) -> None:
    assert locked.post("/retrieve", {"query": "beans"}, Authorization=given).status == 200
    assert locked.get("/nope", Authorization=given).status == 404


def test_path_tricks_do_not_avoid_the_key(locked: Service) -> None:
    for path in (
        "/static/../v1/modules",
        "/static/..%2Fv1/modules",
        "//v1/modules",
        "/%2e/v1/modules",
        "/healthz/../v1/modules",
        "/static/",
    ):
        assert locked.get(path).status in (401, 404), path


@pytest.mark.parametrize(
    ("host", "welcome"),
    [
        ("localhost", True),
        ("LOCALHOST:8000", True),
        ("127.0.0.1:8000", True),
        ("[::1]:8000", True),
        ("recto.localhost", True),
        ("search.example.org", True),
        ("evil.example.org", False),
        ("localhost.evil.example.org", False),
        ("127.0.0.1.evil.example.org", False),
        ("", False),
        ("192.168.0.1", False),
    ],
)
def test_only_local_host_names_are_accepted_on_loopback(locked: Service, host: str, welcome: bool) -> None:
    reply = locked.ask("GET", "/healthz", headers={"Host": host})
    assert reply.status == (200 if welcome else 400)
    if not welcome:
        assert reply.error == "This service does not accept that host name"


def test_a_public_server_accepts_all_hosts_unless_some_are_listed() -> None:
    assert ServeOptions(host="0.0.0.0").accepted_hosts == []
    assert ServeOptions(host="0.0.0.0", hosts=("search.example.org",)).accepted_hosts == [
        "search.example.org"
    ]


def test_probes_of_a_public_server_may_name_any_host(house_settings: Settings) -> None:
    """Load balancers send the address of the machine; every other path checks the host first."""
    options = ServeOptions(host="0.0.0.0", keys=(KEY,), hosts=("search.example.org",))
    with Service(house_settings, options) as service:
        for path, status in {"/healthz": 200, "/readyz": 200, "/metrics": 400, "/": 400}.items():
            assert service.ask("GET", path, headers={"Host": "10.0.0.7:8000"}).status == status, path


def test_readiness_without_a_key_tells_nothing_else(house_settings: Settings, home: Path) -> None:
    with Service(house_settings, ServeOptions(keys=(KEY,))) as service:
        for key in ("", f"Bearer {KEY}", "Bearer wrong"):
            assert service.get("/readyz", Authorization=key).json() == {"status": "ready"}
    empty = Settings("local", "edge", home, collection="secret-book")
    with Service(empty, ServeOptions(keys=(KEY,))) as service:
        reply = service.get("/readyz")
        assert (reply.status, reply.json()) == (503, {"status": "not ready"})
        assert "secret-book" not in str(reply.headers)


def test_headers_for_browsers(locked: Service) -> None:
    for reply in (locked.get("/healthz"), locked.get("/readyz"), locked.get("/static/nope")):
        policy = reply.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy, "nothing from elsewhere"
        assert reply.headers["x-content-type-options"] == "nosniff"
        assert reply.headers["referrer-policy"] == "no-referrer"
        assert reply.headers["cache-control"] == "no-store"
        assert "server" not in reply.headers


def test_no_origin_is_allowed_by_default(service: Service) -> None:
    reply = service.ask(
        "OPTIONS",
        "/v1/search",
        headers={"Origin": "https://book.example.org", "Access-Control-Request-Method": "POST"},
    )
    assert reply.status == 403
    assert "--cors-origin" in reply.json()["hint"]
    assert not [name for name in reply.headers if name.startswith("access-control")]


def options(environment: dict[str, str] | None = None, **changed: Any) -> ServeOptions:
    return serve_options(environment or {}, **changed)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", "", "127.0.0.1.example.org"])
def test_a_public_address_requires_a_key(host: str) -> None:
    with pytest.raises(ConfigurationError, match="RECTO_API_KEY"):
        options(host=host)
    assert options({"RECTO_API_KEY": KEY}, host=host).keys == (KEY,)
    assert options(host=host, has_stored_keys=True).warnings() == []
    assert options(host=host, allow_public=True).warnings()


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "[::1]", "127.8.9.1"])
def test_loopback_requires_no_key(host: str) -> None:
    assert is_loopback(host)
    assert options(host=host).warnings() == []


def test_options_from_the_environment() -> None:
    combined = options(
        {
            "RECTO_API_KEY": f" {KEY} , {OTHER},",
            "RECTO_COLLECTIONS": "a,b",
            "RECTO_ALLOWED_HOSTS": "Search.Example.org",
            "RECTO_CORS_ORIGINS": "https://book.example.org",
            "RECTO_RATE_LIMIT": "60",
            "RECTO_TRUSTED_PROXIES": "10.0.0.0/8, ::1",
        }
    )
    assert combined.keys == (KEY, OTHER)
    assert combined.collections == ("a", "b")
    assert combined.hosts == ("search.example.org",)
    assert combined.origins == ("https://book.example.org",)
    assert combined.rate == 60
    assert [str(network) for network in combined.proxies] == ["10.0.0.0/8", "::1/128"]
    assert KEY not in repr(combined)
    assert options({"RECTO_COLLECTIONS": "a"}, collections=("c",)).collections == ("c",), "flags win"


@pytest.mark.parametrize(
    "environment",
    [
        {"RECTO_API_KEY": "with space in it"},
        {"RECTO_API_KEY": "schlüssel-0123456789"},
        {"RECTO_API_KEY": "recto_pk_0123456789"},
        {"RECTO_TRUSTED_PROXIES": "everyone"},
        {"RECTO_RATE_LIMIT": "many"},
        {"RECTO_RATE_LIMIT": "-1"},
        {"RECTO_ALLOWED_HOSTS": "https://example.org"},
        {"RECTO_CORS_ORIGINS": "*"},
        {"RECTO_CORS_ORIGINS": "https://example.org/path"},
        {"RECTO_CORS_ORIGINS": "https://[x"},
    ],
)
def test_invalid_options_in_the_environment(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        options(environment)
    assert caught.value.hint
    assert environment.get("RECTO_API_KEY", "none") not in str(caught.value)


def test_the_command_exits_with_2(home: Path) -> None:
    done = recto(home, "serve", "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 2
    assert "RECTO_API_KEY is not set" in done.stderr


def test_the_first_named_collection_is_the_default() -> None:
    def default(collections: list[str], **values: str) -> str:
        return options(values, collections=collections).default

    assert default(["my-book", "other"]) == "my-book"
    assert default([], RECTO_COLLECTIONS="other") == default([]) == "humanoid_robotics_book"
