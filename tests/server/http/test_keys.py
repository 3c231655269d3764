"""Test keys with scopes on a real service: what each may do, from which pages, and for how many visitors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest
from starlette.routing import BaseRoute, Mount, Route

from recto.protocols import Embedder
from recto.server import middleware
from recto.server.http import ServeOptions
from recto.server.http.app import make_app
from recto.server.keys import KeyScope, add_key, read_keys, revoke_key
from recto.settings import Settings
from tests.book.files import write
from tests.server.http.service import Caller, Program, Reply, Service, indexed

BOOK, OTHER, GLOBAL = "https://book.example", "https://other.example", "https://cors.example"
SECRET = "nobody outside must read this sentence"
ADMIN = "environment-key-0123456789"

ROUTES = {
    "open": "/ /docs /static /widget.js /client.js /client.d.ts /healthz /readyz",
    "search": "/v1/search /v1/related /v1/context /v1/click /v1/answer /v1/answer/feedback /v1/collections /v1/modules "
    "/v1/pages /v1/pages/{address:path} /llms.txt /llms-full.txt /skill.md",
    "admin": "/retrieve /validate /v1/batch /v1/health /metrics /openapi.json",
}
ACCESS = {path: who for who, paths in ROUTES.items() for path in paths.split()}
"""Who may use each route. A new route must be added here."""

BODIES: dict[str, dict[str, object]] = {
    "/v1/search": {"query": "soil"},
    "/v1/related": {"selection": "soil"},
    "/v1/context": {"query": "soil"},
    "/v1/click": {"query": "soil", "url": "local://garden/page", "rank": 1},
    "/v1/answer": {"query": "soil"},
    "/v1/answer/feedback": {"query": "soil", "helpful": True},
    "/v1/batch": {"queries": ["soil"]},
    "/retrieve": {"query": "soil"},
}


@pytest.fixture(scope="module")
def keys_settings(tmp_path_factory: pytest.TempPathFactory, embedder: Embedder) -> Settings:
    """A home of its own with two collections."""
    root = tmp_path_factory.mktemp("keys")
    for name, text in {"garden": "Soil holds water.", "vault": f"Soil, but {SECRET}."}.items():
        book = write(root / name, {"page.md": f"# Page\n\n{text}\n"})
        settings = indexed(root / "home", name, book, embedder)
    return settings


@pytest.fixture(scope="module")
def served(keys_settings: Settings) -> Iterator[Service]:
    options = ServeOptions(keys=(ADMIN,), collections=("garden",), origins=(GLOBAL,))
    with Service(keys_settings, options) as service:
        yield service


@pytest.fixture
def key(keys_settings: Settings) -> Iterator[str]:
    """A publishable key for one origin and one of the two collections."""
    _, text = add_key(keys_settings.home, "book", "search", [BOOK], ["garden"])
    yield text
    for one in read_keys(keys_settings.home):
        if one.name == "book" and not one.revoked_at:
            revoke_key(keys_settings.home, "book")


def ask(served: Caller, path: str, key: str = "", **headers: str) -> Reply:
    sent = {"Authorization": f"Bearer {key}", **headers} if key else headers
    body = BODIES.get(path.partition("?")[0])
    return served.ask("GET" if body is None else "POST", path, body, sent)


def page_of(served: Service, collection: str) -> str:
    listed = served.get(f"/v1/pages?collection={collection}", Authorization=f"Bearer {ADMIN}").json()
    url: str = listed["pages"][0]["url"]
    return f"/v1/pages/{url.replace(':', '%3A').replace('/', '%2F')}"


def preflight(served: Service, origin: str) -> Reply:
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    return served.ask("OPTIONS", "/v1/search", headers=headers)


def paths(routes: Iterable[BaseRoute]) -> Iterator[str]:
    """Yield the path of each route, also of those that the OpenAPI description leaves out."""
    for route in routes:
        if isinstance(route, Route | Mount):
            yield route.path
        else:
            included = getattr(route, "original_router", None)
            assert included is not None, f"an unknown kind of route: {route}"
            yield from paths(included.routes)


def test_every_route_is_classified(keys_settings: Settings) -> None:
    app = make_app(keys_settings, ServeOptions())
    assert set(paths(app.routes)) == set(ACCESS), "add the new route to ACCESS: who may use it?"
    assert {path.replace(":path", "") for path in ACCESS} > set(app.openapi()["paths"])


@pytest.mark.parametrize("route", ACCESS)
def test_what_a_search_key_may_use(served: Service, key: str, route: str) -> None:
    own = {"/static": "/static/main.js", "/v1/pages/{address:path}": page_of(served, "garden")}
    path = own.get(route, route)
    statuses = (ask(served, path).status, ask(served, path, key).status, ask(served, path, ADMIN).status)
    # This service has no model, and says so to whoever may ask it.
    done = {"/v1/click": 204, "/v1/answer/feedback": 204, "/v1/answer": 404}.get(route, 200)
    expected = {"open": (done, done, done), "search": (401, done, done), "admin": (401, 403, done)}
    assert statuses == expected[ACCESS[route]]
    if ACCESS[route] == "admin":
        refused = ask(served, path, key)
        assert refused.error == "This API key is only for searching and reading a book"
        assert served.ask("HEAD", path, headers={"Authorization": f"Bearer {key}"}).status in (403, 405)


@pytest.mark.parametrize(
    "path", ["/nope", "/v1/pages/../../metrics", "//metrics", "/v1/search/", "/METRICS", "/v1/collections/x"]
)
def test_path_tricks_give_a_search_key_nothing(served: Service, key: str, path: str) -> None:
    reply = ask(served, path, key)
    assert reply.status in (403, 404)
    assert b"recto_requests" not in reply.body


def test_a_search_key_reads_its_collections_only(served: Service, key: str) -> None:
    """A stolen key learns neither the content nor the names of other collections."""
    headers = {"Authorization": f"Bearer {key}"}
    assert served.get("/v1/collections", **headers).json() == {
        "collections": [{"name": "garden", "default": True, "title": "garden", "logo": None, "versions": []}]
    }
    refused = [
        served.ask("POST", path, {**BODIES[path], "collection": name}, headers)
        if path in BODIES
        else served.get(f"{path}?collection={name}", **headers)
        for name in ("vault", "no-such-collection", "humanoid_robotics_book")
        for route, access in ACCESS.items()
        if access == "search" and route != "/v1/collections"
        for path in ((page_of(served, "vault"), page_of(served, "garden")) if "{" in route else (route,))
    ]
    assert {(reply.status, reply.error, reply.json()["hint"]) for reply in refused} == {
        (403, "This API key is not for that collection", "It is for: garden.")
    }
    # Without a collection, a request searches the key's own, not the default of the service.
    found = ask(served, "/v1/search", key)
    assert found.json()["collection"] == "garden"
    assert b"Soil holds water" in found.body
    got = served.get("/v1/search?q=soil", **headers)
    assert got.json()["collection"] == "garden"
    assert served.get("/v1/search?q=soil&collection=vault", **headers).status == 403
    for path in ("/v1/related", "/v1/pages", "/llms.txt", "/llms-full.txt"):
        body = ask(served, path, key).body + found.body + got.body
        assert SECRET.encode() not in body
        assert b"vault" not in body
    markdown = ask(served, page_of(served, "garden") + ".md", key)
    assert (markdown.status, markdown.body) == (200, b"# Page\n\nSoil holds water.\n")
    assert SECRET.encode() not in ask(served, page_of(served, "vault"), key).body
    assert SECRET.encode() in ask(served, page_of(served, "vault"), ADMIN).body


def test_a_collection_that_is_not_served(served: Service, keys_settings: Settings) -> None:
    _, text = add_key(keys_settings.home, "elsewhere", "search", collections=["elsewhere", "garden"])
    assert ask(served, "/v1/modules", text).json()["collection"] == "garden"
    assert ask(served, "/v1/modules?collection=elsewhere", text).status == 404


def test_keys_that_have_ended(served: Service, keys_settings: Settings, key: str) -> None:
    assert ask(served, "/v1/search", key, Origin=BOOK).status == 200
    revoke_key(keys_settings.home, "book")
    refused = ask(served, "/v1/search", key, Origin=BOOK)
    assert (refused.status, refused.error) == (401, "This API key was revoked")
    assert refused.headers["access-control-allow-origin"] == BOOK, "its page can say why"
    assert preflight(served, BOOK).status == 200
    wrong = ask(served, "/v1/search", "recto_pk_" + "x" * 43)
    assert (wrong.status, wrong.error) == (401, "An API key is required")


def test_stored_admin_keys(served: Service, keys_settings: Settings) -> None:
    _, text = add_key(keys_settings.home, "operator", "admin")
    for path in ("/metrics", "/v1/health", "/v1/batch", "/openapi.json", "/v1/search"):
        assert ask(served, path, text).status == 200, path


def test_a_key_in_its_own_header(served: Service, key: str) -> None:
    assert served.get("/v1/modules", **{"X-API-Key": key}).status == 200
    assert served.get("/v1/modules", Authorization="Basic cHJveHk6", **{"X-API-Key": key}).status == 200
    assert served.get(f"/v1/modules?key={key}&api_key={key}").status == 401, "never in a URL"


@pytest.mark.parametrize(
    ("status", "origins"),
    [(200, [BOOK, None]), (403, [OTHER, GLOBAL, "null", "", f"{BOOK}.evil.example", f"{BOOK}:444"])],
)
@pytest.mark.parametrize("site", [None, "cross-site", "same-origin"])
def test_pages_that_may_use_a_key(
    served: Service, key: str, status: int, origins: list[str | None], site: str | None
) -> None:
    for origin in origins:
        given = {"Origin": origin, "Sec-Fetch-Site": site}
        headers = {name: value for name, value in given.items() if value is not None}
        reply = ask(served, "/v1/search", key, **headers)
        is_hidden = origin is None and site == "cross-site"  # only a browser sends it, always with an origin
        assert reply.status == (403 if is_hidden else status), given
        assert "Origin" in reply.headers["vary"]
        readable = origin if origin in (BOOK, GLOBAL) else None  # GLOBAL may read the error
        assert reply.headers.get("access-control-allow-origin") == readable
        assert "access-control-allow-credentials" not in reply.headers


def test_a_key_without_origins_is_not_for_pages(served: Service, keys_settings: Settings) -> None:
    _, text = add_key(keys_settings.home, "program", "search", collections=["garden"])
    assert ask(served, "/v1/search", text).status == 200
    assert ask(served, "/v1/search", text, Origin=GLOBAL).status == 200
    refused = ask(served, "/v1/search", text, Origin=BOOK)
    assert refused.status == 403
    assert "recto keys add" in refused.json()["hint"]
    assert ask(served, "/v1/search", ADMIN, Origin=BOOK).status == 403


def test_preflights(served: Service, key: str) -> None:
    for origin in (BOOK, GLOBAL):
        allowed = preflight(served, origin)
        assert allowed.status == 200
        assert allowed.headers["access-control-allow-origin"] == origin
        names = allowed.headers["access-control-allow-headers"].lower().split(", ")
        assert {"authorization", "content-type", "x-api-key"} <= {*names}
        assert allowed.headers["access-control-allow-methods"] == "GET, HEAD, POST"
        assert "Origin" in allowed.headers["vary"]
    for origin in (OTHER, "null", "", f"{BOOK}.evil.example"):
        refused = preflight(served, origin)
        assert refused.status == 403
        assert "--cors-origin" in refused.json()["hint"]
        assert "recto keys add" in refused.json()["hint"]
        assert "access-control-allow-origin" not in refused.headers


def test_files_for_pages(served: Service, key: str) -> None:
    """The scripts of the page are for known pages; the widget and the client are for those of all sites."""
    assert served.get("/static/main.js", Origin=BOOK).headers["access-control-allow-origin"] == BOOK
    assert "access-control-allow-origin" not in served.get("/static/main.js", Origin=OTHER).headers
    for path in ("/widget.js", "/client.js", "/client.d.ts", "/static/client.js"):
        for origin in (BOOK, OTHER, GLOBAL, "null"):
            reply = served.get(path, Origin=origin, **{"Sec-Fetch-Site": "cross-site"})
            assert reply.status == 200
            assert reply.headers["cache-control"] == "no-cache"
            again = served.get(path, Origin=origin, **{"If-None-Match": reply.headers["etag"]})
            assert (again.status, again.body) == (304, b"")
            for one in (reply, again):
                allowed = origin if origin in (BOOK, GLOBAL) else "*"
                assert one.repeated["access-control-allow-origin"] == [allowed]
                assert one.repeated["cross-origin-resource-policy"] == ["cross-origin"]


def test_the_first_key_closes_a_local_service(keys_settings: Settings, key: str) -> None:
    with Service(keys_settings) as service:
        assert service.get("/v1/modules").status == 401
        assert service.get("/healthz").status == 200


PROXIES = ("127.0.0.0/8",)


@pytest.mark.parametrize(("scope", "proxies"), [("search", PROXIES), ("admin", PROXIES), ("search", ())])
def test_visitors_behind_a_proxy_are_limited_each_by_themselves(
    keys_settings: Settings, key: str, scope: KeyScope, proxies: tuple[str, ...]
) -> None:
    """An admin key is one caller, and without a trusted proxy, visitors cannot choose their address."""
    if scope == "admin":
        _, key = add_key(keys_settings.home, "one-caller", "admin")
    options = ServeOptions(collections=("garden",), rate=1, proxies=proxies)
    with Service(keys_settings, options) as service:

        def visit(address: str) -> int:
            return ask(service, "/v1/collections", key, **{"X-Forwarded-For": address}).status

        assert [visit("203.0.113.1") for _ in range(3)] == [200, 429, 429]
        if scope == "admin" or not proxies:
            assert visit("203.0.113.2") == 429
            return
        assert [visit(f"198.51.100.{number}") for number in range(1, 31)] == [200] * 30
        assert visit("198.51.100.7") == 429
        assert visit("6.6.6.6, 198.51.100.8") == 429, "what a visitor sends does not count"
        assert visit("2001:db8:1:2::1") == 200
        assert visit("2001:db8:1:2::2") == 429, "one network"


def test_wrong_keys_are_counted_by_visitor(
    keys_settings: Settings, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(middleware, "_WRONG_KEYS", 1)
    with Service(keys_settings, ServeOptions(collections=("garden",), proxies=PROXIES)) as service:

        def visit(address: str) -> int:
            return ask(service, "/v1/collections", "wrong", **{"X-Forwarded-For": address}).status

        assert [visit("203.0.113.1") for _ in range(3)] == [401, 429, 429]
        assert visit("203.0.113.2") == 401
        missing = service.get("/v1/collections", **{"X-Forwarded-For": "203.0.113.1"})
        assert missing.status == 401, "a missing key is not a wrong one"


@pytest.mark.slow
def test_all_workers_notice_a_revoked_key_and_log_no_visitors(keys_settings: Settings, key: str) -> None:
    arguments = "--workers 2 --collection garden --trusted-proxy 127.0.0.1 --host 127.0.0.1"
    with Program(keys_settings.home, tuple(arguments.split())) as program:
        sent = {"X-Forwarded-For": "198.51.100.77"}
        assert {ask(program, "/v1/modules", key, **sent).status for _ in range(10)} == {200}
        revoke_key(keys_settings.home, "book")
        assert {ask(program, "/v1/modules", key, **sent).status for _ in range(10)} == {401}
        assert program.end() == 0
    lines = [line for line in program.lines() if line["message"] == "request"]
    assert [line.get("key") for line in lines if line["status"] == 200] == ["book"] * 10
    assert {line["refused"] for line in lines if line["status"] == 401} == {"revoked"}
    assert key not in program.output
    assert "198.51.100.77" not in program.output
