"""Test stored keys and their commands, services that read them again, and the addresses of visitors behind proxies."""

from __future__ import annotations

import ipaddress
import json
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.errors import ConfigurationError, FormatMismatch, InvalidArgument
from recto.server import keys as module
from recto.server.auth import (
    MAX_HEADER,
    ApiKeys,
    check_networks,
    parse_address,
    parse_forwarded,
    visitor_address,
)
from recto.server.keys import add_key, check_origin, digest, key_file, read_keys, revoke_key
from recto.server.limits import Refused
from recto.settings import load_settings
from tests.running import recto
from tests.server.http.service import Service

BOOK = "https://book.example"


def test_only_the_digest_is_stored(home: Path) -> None:
    key, text = add_key(home, "book", "search", [BOOK], ["house"])
    assert text.startswith("recto_pk_")
    assert len(text) == len("recto_pk_") + 43, "256 bits"
    stored = key_file(home).read_text("utf-8")
    assert text.removeprefix("recto_pk_") not in stored
    assert json.loads(stored)["keys"][0]["digest"] == sha256(text.encode()).hexdigest()
    assert "digest" not in repr(key) + json.dumps(key.to_dict())
    assert add_key(home, "me", "admin")[1].startswith("recto_sk_")
    if os.name == "posix":
        assert key_file(home).stat().st_mode & 0o777 == 0o600


def test_names_are_used_once_until_they_are_revoked(home: Path) -> None:
    _, first = add_key(home, "book", "search", collections=["house"])
    with pytest.raises(InvalidArgument, match="already"):
        add_key(home, "book", "admin")
    revoke_key(home, "book")
    with pytest.raises(InvalidArgument, match="no key"):
        revoke_key(home, "book")
    _, second = add_key(home, "book", "search", collections=["house"])
    service = ApiKeys((), home)
    with pytest.raises(Refused):
        service.authenticate({"x-api-key": first})
    assert service.authenticate({"x-api-key": second}).name == "book"


def test_several_writers_lose_nothing(home: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: add_key(home, f"key{number}", "admin"), range(16)))
    assert {key.name for key in read_keys(home)} == {f"key{number}" for number in range(16)}


def test_the_oldest_revoked_keys_are_dropped(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT_REVOKED", 2)
    days = iter(range(1, 20))
    monkeypatch.setattr(module, "_now", lambda: f"2026-01-{next(days):02}T00:00:00Z")
    for name in ("a", "b", "c", "d"):
        add_key(home, name, "admin")
    for name in ("a", "b", "c"):
        revoke_key(home, name)
    assert [key.name for key in read_keys(home)] == ["b", "c", "d"]


def test_the_file_has_a_size_limit(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    add_key(home, "first", "admin")
    monkeypatch.setattr(module, "MAX_FILE", 400)
    with pytest.raises(ConfigurationError, match="larger"):
        add_key(home, "second", "admin")
    assert [key.name for key in read_keys(home)] == ["first"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("1", "admin"), "name"),
        (("a b", "admin"), "name"),
        (("a" * 65, "admin"), "name"),
        (("a", "search"), "--collection"),
        (("a", "admin", [BOOK]), "admin key"),
        (("a", "admin", [], ["house"]), "admin key"),
        (("a", "search", [], ["../house"]), "collection name"),
        (("a", "search", ["*"], ["house"]), "origin"),
        (("a", "admin", [], [], "2020-01-01"), "--expires"),
        (("a", "admin", [], [], "20301231"), "--expires"),
        (("a", "admin", [], [], "soon"), "--expires"),
    ],
)
def test_invalid_keys(home: Path, arguments: tuple[str, ...], message: str) -> None:
    with pytest.raises((InvalidArgument, ConfigurationError), match=message) as caught:
        add_key(home, *arguments)  # type: ignore[arg-type]
    assert caught.value.hint
    assert not key_file(home).exists()


@pytest.mark.parametrize(
    ("given", "origin"),
    [
        ("HTTPS://Book.Example", BOOK),
        ("https://book.example:443", BOOK),
        ("http://localhost:3000", "http://localhost:3000"),
        ("http://[::1]:80", "http://[::1]"),
    ],
)
def test_origins_are_written_as_browsers_write_them(given: str, origin: str) -> None:
    assert check_origin(given) == origin


INVALID_ORIGINS = (
    "null * book.example https://book.example/ https://a@b https://*.b https://a.example:99999 "
    "https://a.example:0 https://a..b https://.a https:// https://[x file://x"
)


@pytest.mark.parametrize("given", INVALID_ORIGINS.split())
def test_invalid_origins(given: str) -> None:
    with pytest.raises(ConfigurationError):
        check_origin(given)


DAMAGED_KEYS = (
    "[]",
    '{"name": "a"}',
    '{"name": "a", "scope": "all"}',
    '{"name": "a", "scope": "search", "collections": []}',
    '{"name": "a", "scope": "search", "collections": "house"}',
    '{"name": "a", "scope": "admin", "digest": 5}',
    '{"name": "a", "scope": "admin", "more": ""}',
)
DAMAGED_FILES = ["", "[]", "{}", '{"format": "1", "keys": []}', "[" * 100_000]


@pytest.mark.parametrize(
    "text", [*DAMAGED_FILES, *(f'{{"format": 1, "keys": [{key}]}}' for key in DAMAGED_KEYS)]
)
def test_a_damaged_file_is_an_error(home: Path, text: str) -> None:
    _, key = add_key(home, "a", "admin")
    service = ApiKeys(("from-the-environment",), home)
    assert service.authenticate({"authorization": f"Bearer {key}"}).name == "a"
    key_file(home).write_text(text, "utf-8")
    with pytest.raises(ConfigurationError) as caught:
        read_keys(home)
    assert caught.value.hint
    with pytest.raises(ConfigurationError):
        add_key(home, "b", "admin")
    assert key_file(home).read_text("utf-8") == text, "nothing is overwritten"
    with pytest.raises(Refused) as refused:
        service.authenticate({"authorization": f"Bearer {key}"})
    assert refused.value.refusal.status == 503
    assert service.authenticate({"authorization": "Bearer from-the-environment"}).name == "1"


def test_a_newer_format(home: Path) -> None:
    home.mkdir()
    key_file(home).write_text('{"format": 2, "keys": []}', "utf-8")
    with pytest.raises(FormatMismatch, match="newer"):
        read_keys(home)


def test_services_notice_changes(home: Path) -> None:
    service = ApiKeys((), home)
    assert not service, "without keys, a local service is open"
    _, text = add_key(home, "book", "search", [BOOK], ["house"])
    assert service
    assert set(service.origins) == {BOOK}
    assert service.authenticate({"x-api-key": text}).name == "book"
    revoke_key(home, "book")
    with pytest.raises(Refused) as refused:
        service.authenticate({"authorization": f"Bearer {text}"})
    assert refused.value.reason == "revoked"
    assert set(service.origins) == {BOOK}, "its pages can read the error"
    key_file(home).unlink()
    assert service, "it does not open again"
    with pytest.raises(Refused):
        service.authenticate({"authorization": f"Bearer {text}"})
    assert ApiKeys((), home, was_found=True), "nor does a worker that starts now"


def test_a_key_is_valid_on_its_last_day(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    today = datetime.now(UTC).date()
    key, text = add_key(home, "book", "admin", expires=today.isoformat())
    service = ApiKeys((), home)
    assert service.authenticate({"authorization": f"Bearer {text}"}) == key
    monkeypatch.setattr(module, "_today", (today + timedelta(days=1)).isoformat)
    assert key.state == "expired"
    with pytest.raises(Refused) as refused:
        service.authenticate({"authorization": f"Bearer {text}"})
    assert (refused.value.reason, refused.value.refusal.status) == ("expired", 401)


PROXIES = check_networks(["10.0.0.0/8", "fd00::/8"])
PEER = "10.0.0.1"


def visitor(*headers: tuple[str, str], peer: str | None = PEER) -> str:
    scope = {
        "client": (peer, 1) if peer is not None else None,
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers],
    }
    return visitor_address(scope, PROXIES)


def listed(value: str, peer: str = PEER) -> str:
    return visitor(("x-forwarded-for", value), peer=peer)


def forwarded(value: str, peer: str = PEER) -> str:
    return visitor(("forwarded", value), peer=peer)


@pytest.mark.parametrize(
    ("expected", "values"),
    [
        ("198.51.100.7", ["198.51.100.7", "6.6.6.6, 198.51.100.7", "198.51.100.7, 10.1.2.3, 10.9.9.9"]),
        ("198.51.100.7", ["198.51.100.7:4711", "::ffff:198.51.100.7"]),
        ("2001:db8:1:2::/64", ["[2001:db8:1:2::9]:4711", "2001:db8:1:2::9"]),
        ("10.5.5.5", ["10.5.5.5, 10.6.6.6"]),
        ("10.2.2.2", ["198.51.100.7, nonsense, 10.2.2.2"]),
        (PEER, ["", ",", "198.51.100.7,", "198.51.100.7, unknown"]),
        (PEER, ["1.2.3.4.5", "fe80::1%eth0", "127.0.0.1\x00"]),
    ],
)
def test_x_forwarded_for(expected: str, values: list[str]) -> None:
    assert [listed(value) for value in values] == [expected] * len(values)


@pytest.mark.parametrize(
    ("expected", "values"),
    [
        ("198.51.100.7", ["for=198.51.100.7", "For=198.51.100.7;proto=https;by=203.0.113.43"]),
        ("198.51.100.7", ["for=6.6.6.6, for=198.51.100.7;host=book.example , for=10.3.3.3"]),
        ("198.51.100.7", ['for="198.51.100.7:4711"', "for=198.51.100.7:4711", r'for="198.51.100\.7"']),
        ("198.51.100.7", ['host="a, for=6.6.6.6";for=198.51.100.7']),
        ("2001:db8:1:2::/64", ['for="[2001:db8:1:2::9]:4711"', 'for="[2001:db8:1:2::9]:_port"']),
        ("10.3.3.3", ["for=198.51.100.7, for=_random, for=10.3.3.3"]),
        (PEER, ["for=unknown", "for=_hidden", "proto=https", "for=198.51.100.7;for=6.6.6.6", "for=", ""]),
        (PEER, ['for="198.51.100.7', "for = 198.51.100.7", "for=198.51.100.7 by=10.0.0.1"]),
        (PEER, ["for=6.6.6.6 nonsense, for=198.51.100.7"]),
    ],
)
def test_forwarded(expected: str, values: list[str]) -> None:
    assert [forwarded(value) for value in values] == [expected] * len(values)


def test_headers_of_others_do_not_count() -> None:
    for peer in ("198.51.100.1", "fe80::1", "11.0.0.1"):
        assert listed("6.6.6.6", peer) == forwarded("for=6.6.6.6", peer) == visitor(peer=peer)
    assert visitor(("x-forwarded-for", "6.6.6.6"), peer=None) == "unknown"
    assert visitor(("x-forwarded-for", "6.6.6.6"), peer="a-socket") == "a-socket"
    assert listed("198.51.100.7", "fd00::1") == listed("198.51.100.7", "::ffff:10.0.0.1") == "198.51.100.7"


def test_visitors_cannot_choose_their_address_with_the_header_that_the_proxy_passes_on() -> None:
    right = ("x-forwarded-for", "198.51.100.7")
    for invented in ("for=6.6.6.6", "for=_x", "nonsense", "for=" + "1" * MAX_HEADER):
        assert visitor(right, ("forwarded", invented)) == PEER
    assert visitor(right, ("forwarded", "for=198.51.100.7")) == "198.51.100.7"
    # The proxy appends to what the visitor sent.
    assert visitor(("forwarded", '", for=198.51.100.7'), ("x-forwarded-for", "6.6.6.6")) == PEER


def test_repeated_and_long_headers() -> None:
    assert visitor(("x-forwarded-for", "6.6.6.6"), ("x-forwarded-for", "198.51.100.7")) == "198.51.100.7"
    assert visitor(("forwarded", "for=6.6.6.6"), ("forwarded", "for=198.51.100.7")) == "198.51.100.7"
    assert listed("6.6.6.6, " * 1000 + "198.51.100.7") == PEER, "it is not read"
    assert listed("6.6.6.6, " * 400 + "198.51.100.7") == "198.51.100.7"


def test_neighbours_in_ipv6_are_one_caller() -> None:
    assert visitor(peer="2001:db8:1:2::1") == visitor(peer="2001:db8:1:2:ffff::9") == "2001:db8:1:2::/64"
    assert visitor(peer="2001:db8:1:3::1") == "2001:db8:1:3::/64"


@pytest.mark.parametrize("text", ["10.0.0.1/8", "10.0.0", "proxy.example", "0.0.0.0/0", "::/0"])
def test_ranges_are_checked(text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_networks([text])
    assert caught.value.hint


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
addresses = st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6))


def written(address: Address, port: int | None, quoted: bool) -> str:
    node = f"[{address}]" if address.version == 6 else str(address)
    node += f":{port}" if port is not None else ""
    return f'"{node}"' if quoted or address.version == 6 else node


@settings(max_examples=50)
@given(
    st.lists(st.tuples(addresses, st.none() | st.integers(0, 65535), st.booleans()), min_size=1, max_size=9),
    st.sampled_from([", ", ",", " ,\t"]),
    st.sampled_from(["", ";proto=https", ';host="a\\",b"']),
)
def test_every_list_is_read(nodes: list[tuple[Address, int | None, bool]], separator: str, more: str) -> None:
    expected = [getattr(address, "ipv4_mapped", None) or address for address, _, _ in nodes]
    text = separator.join(f"for={written(*node)}{more}" for node in nodes)
    assert parse_forwarded(text) == expected


@settings(max_examples=50)
@given(st.text(st.characters(max_codepoint=255), max_size=300))
def test_any_text_gives_an_address(text: str) -> None:
    parse_address(text)
    for found in (listed(text), forwarded(text), visitor(("forwarded", text), ("x-forwarded-for", text))):
        ipaddress.ip_network(found)


@settings(max_examples=50)
@given(st.text('for=",;\\ []:_.0123456789', max_size=200), addresses)
def test_what_a_visitor_sends_does_not_change_what_the_proxy_appends(sent: str, address: Address) -> None:
    own = visitor(peer=str(address))
    node = written(address, None, quoted=True)
    if not any(address in network for network in PROXIES):
        assert listed(f"{sent}, {address}") == own
        assert forwarded(f"{sent}, for={node}") in (own, PEER)


@pytest.mark.parametrize("part", ["for=", '"', "for=a;", ",", "\\", " ", 'for="\\', "a" * 9, "for=1.1.1.1,"])
def test_parsing_takes_linear_time(part: str) -> None:
    text = (part * MAX_HEADER)[:MAX_HEADER]
    began = process_time()
    for _ in range(20):
        listed(text)
        forwarded(text)
    assert process_time() - began < 5


ADD = ("keys", "add", "book", "--origin", "https://book.example", "--collection", "my-book")


def test_a_key_is_shown_once(home: Path) -> None:
    made = recto(home, *ADD, "--expires", "2999-12-31")
    assert made.returncode == 0, made.stderr
    text = made.stdout.strip()
    assert text.startswith("recto_pk_")
    assert "cannot be shown again" in made.stderr
    assert text not in made.stderr
    (key,) = read_keys(home)
    assert key.digest == digest(text)
    assert (key.scope, key.origins, key.collections) == ("search", ("https://book.example",), ("my-book",))
    listed = recto(home, "keys", "list")
    assert listed.stdout.startswith("book: search, active; origins https://book.example; collections my-book")
    assert "expires 2999-12-31" in listed.stdout
    assert text not in listed.stdout
    assert key.digest not in recto(home, "keys", "list", "--json").stdout


def test_revoke(home: Path) -> None:
    assert recto(home, "keys", "list").stdout == "There are no keys.\n"
    text = json.loads(recto(home, *ADD, "--json").stdout)["key"]
    assert recto(home, "keys", "revoke", "book").stdout == "Revoked the key 'book'.\n"
    (listed,) = json.loads(recto(home, "keys", "list", "--json").stdout)
    assert listed["state"] == "revoked"
    assert "digest" not in listed
    (key,) = read_keys(home)
    assert (key.digest, key.state) == (digest(text), "revoked")
    again = recto(home, "keys", "revoke", "book", "--json")
    assert again.returncode == 4
    assert "recto keys list" in again.stderr


def test_a_service_does_not_start_with_a_damaged_file(home: Path) -> None:
    home.mkdir()
    key_file(home).write_text("{", "utf-8")
    done = recto(home, "serve", "--port", "0")
    assert done.returncode == 2
    assert "cannot be read" in done.stderr


def test_a_repository_cannot_bring_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user, project = tmp_path / "user", tmp_path / "project"
    project.mkdir()
    monkeypatch.setenv("HOME", str(user))
    (project / ".env").write_text("RECTO_HOME=hostile\n", "utf-8")
    monkeypatch.chdir(project)
    _, text = add_key(project / "hostile", "attacker", "admin")
    settings = load_settings({"HOME": str(user)}, project)
    assert settings.home == project / "hostile"
    assert settings.key_home == user / ".recto"
    add_key(settings.key_home, "own", "admin")
    with Service(settings) as service:
        assert service.get("/openapi.json", Authorization=f"Bearer {text}").status == 401
    trusted = load_settings({"HOME": str(user), "RECTO_HOME": str(project / "hostile")}, project)
    assert trusted.key_home == trusted.home
