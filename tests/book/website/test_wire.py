"""Checked addresses, URLs, robots.txt and sitemaps."""

from __future__ import annotations

import ipaddress
from itertools import product
from string import ascii_lowercase

import httpcore
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recto.book.sources.website import Scope, normal
from recto.book.sources.website.addresses import is_public
from recto.book.sources.website.crawl import skip_reason
from recto.book.sources.website.discovery import Robots, parse_sitemap
from recto.book.sources.website.network import AddressRefused, GuardedBackend
from tests.doubles.site import SiteDouble, page

PRIVATE = {
    "this network": "0.0.0.0 0.255.255.255",
    "private": "10.0.0.1 10.255.255.255 172.16.0.0 172.31.255.255 192.168.0.0 192.168.255.255",
    "carrier-grade NAT": "100.64.0.0 100.127.255.255",
    "loopback": "127.0.0.1 127.8.8.8 ::1",
    "link-local": "169.254.169.254 fe80::1 fe80::1%eth0",
    "protocol assignments": "192.0.0.1 192.0.0.9 192.0.0.255 2001:2::1 2001:10::1 2001:20::1 2001:1ff:ffff::1",
    "documentation": "192.0.2.1 198.51.100.1 203.0.113.1 2001:db8::1 3fff::1 3fff:fff:ffff::1",
    "6to4 relays": "192.88.99.1",
    "benchmarks": "198.18.0.1 198.19.255.255",
    "multicast": "224.0.0.1 239.255.255.255 ff02::1 ff0e::1",
    "reserved": "240.0.0.1 255.255.255.255 :: 100::1 4000::1 5f00::1",
    "unique local and site-local": "fc00::1 fd00:ec2::254 fec0::1 feff::1",
    "IPv4-compatible": "::127.0.0.1 ::8.8.8.8",
    "IPv4-mapped and translated": "::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:192.0.0.9 ::ffff:0:127.0.0.1",
    "NAT64": "64:ff9b::7f00:1 64:ff9b::a9fe:a9fe 64:ff9b::c000:9 64:ff9b:2::808:808",
    "local NAT64": "64:ff9b:1::a00:1 64:ff9b:1:7f00:0:100:808:808",
    "Teredo": "2001::1 2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "6to4": "2002:7f00:1:: 2002:a00:1::1 2002:c0a8:101::808:808 2002:c058:6301::",
    "not an address": "localhost 127.1 8.8.8.8.",
}
PUBLIC = {
    "IPv4": "1.1.1.1 8.8.8.8 93.184.215.14 223.255.255.255",
    "next to private": "100.63.255.255 100.128.0.1 172.15.255.255 172.32.0.1 192.0.1.1 198.17.255.255 198.20.0.1",
    "IPv6": "2001:200::1 2001:4860:4860::8888 2003::1 2606:4700::1111 2a00:1450::1 3ffe:ffff::1",
    "embedded IPv4": "::ffff:8.8.8.8 64:ff9b::808:808 64:ff9b:1::808:808 2002:808:808::1",
}


@pytest.mark.parametrize("address", " ".join(PUBLIC.values()).split())
def test_public_addresses_are_allowed(address: str) -> None:
    assert is_public(address)


@pytest.mark.parametrize("address", ["", *" ".join(PRIVATE.values()).split()])
def test_private_addresses_are_refused(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the table, too, if the flags of `ipaddress` do not."""
    assert not is_public(address)
    for kind in (ipaddress.IPv4Address, ipaddress.IPv6Address):
        for flag, value in (("is_global", True), ("is_multicast", False), ("is_reserved", False)):
            monkeypatch.setattr(kind, flag, value)
    assert not is_public(address)


def test_connection_uses_the_checked_address_and_checks_every_lookup() -> None:
    answers = iter([["127.0.0.1"], ["127.0.0.2"]])
    checked: list[str] = []

    def allows(address: str) -> bool:
        checked.append(address)
        return address == "127.0.0.1"

    backend = GuardedBackend(lambda *_: next(answers), allows)
    backend.begin(20)
    with SiteDouble() as site, httpcore.ConnectionPool(network_backend=backend) as pool:
        site.put("/", page("Start"))
        url = f"http://book.invalid:{site.url.rpartition(':')[2]}/"
        # No resolver knows this name, so the connection used the first lookup.
        assert pool.request("GET", url, headers={"Connection": "close"}).status == 200
        with pytest.raises(AddressRefused):
            pool.request("GET", url)
    assert checked == ["127.0.0.1", "127.0.0.2"]
    assert len(site.requests) == 1


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("HTTP://Book.Example:80/a/../b/./c#part", "http://book.example/b/c"),
        ("https://book.example:443", "https://book.example/"),
        ("https://book.example:8443/x y?q=ä", "https://book.example:8443/x%20y?q=%C3%A4"),
        ("http://book.example/%2e%2e/%2E/secret", "http://book.example/secret"),
        ("http://bücher.example/", "http://xn--bcher-kva.example/"),
        ("http://book.example./", "http://book.example/"),
        ("http://[2001:DB8::1]/", "http://[2001:db8::1]/"),
        ("http://book.example/100%", "http://book.example/100%25"),
        ("javascript:alert(1)", ""),
        ("http://a@book.example/", ""),
        ("http://book.example\\@evil.example/", ""),
        ("http://book.example:99999/", ""),
        (f"http://book.example/{'x' * 3000}", ""),
    ],
)
def test_normalised_urls(written: str, expected: str) -> None:
    assert normal(written) == expected


@given(st.text(max_size=60))
def test_normalising_never_fails_and_is_idempotent(text: str) -> None:
    url = normal(f"http://book.example/{text}")
    assert normal(url) == url
    joined = normal(text, "http://book.example/")
    assert not joined or joined.startswith(("http://", "https://"))


def test_scope() -> None:
    scope = Scope.of("https://x.example/book/index.html")
    assert scope == Scope.of("https://x.example/book/") == Scope.of("https://x.example/book")
    assert scope.contains("https://x.example/book")
    assert not scope.contains("https://x.example/bookshop/")
    assert scope.own("http://x.example/book/a") == "https://x.example/book/a"
    assert scope.own("https://y.example/book/a") == ""
    assert Scope.of("http://x.example:8000/").own("https://x.example:8000/") == ""
    spellings = ("a/b", "a/b/", "a/b.html", "a/b/index.html", "a/b/index")
    assert {scope.path(f"https://x.example/book/{spelling}") for spelling in spellings} == {"a/b"}
    assert scope.path("https://x.example/book") == "index"


def allows(rules: str, path: str) -> bool:
    return Robots(rules).allows(f"https://x.example{path}")


def test_rules_are_not_copied_to_each_of_many_agents() -> None:
    """Ten million rules would fill the memory."""
    agents = [f"User-agent: {''.join(letters)}" for letters in product(ascii_lowercase[:18], repeat=3)]
    rules = [f"Disallow: /{number}" for number in range(2_000)]
    assert not allows("\n".join([*agents, "User-agent: *", *rules]), "/7")


def test_robots_txt_is_read_up_to_a_limit_without_a_line_that_is_cut_off() -> None:
    head = "User-agent: *\n" + "".join(f"Disallow: /{number:05}\n" for number in range(29_000))
    filled = head.ljust((500 << 10) - len("\nDisallow: /"), "#") + "\nDisallow: /private\nDisallow: /b\n"
    rules = Robots(filled)
    allowed = [rules.allows(f"https://x.example/{path}") for path in ("00000", "28999/a", "29000", "c", "b")]
    assert allowed == [False, False, True, True, True]


@given(st.text(max_size=300), st.binary(max_size=300))
def test_any_robots_txt_and_sitemap_is_parsed(text: str, data: bytes) -> None:
    Robots(text).allows("https://x.example/a")
    parse_sitemap(data)
    parse_sitemap(b"<urlset><url><loc>" + data)


def test_sitemap_as_a_plain_list() -> None:
    pages = ["https://x.example/a", "https://x.example/b"]
    assert parse_sitemap("\nnothing\n".join(pages).encode()).pages == pages


@pytest.mark.parametrize(
    ("paths", "skipped"),
    [
        ("tags docs/tags/a blog/tags search a/search genindex _modules/a print 404 a.pdf blog/x", True),
        ("index git/tags a/search-trees docs/blogging module-1/print-statements v1.2 docs/intro", False),
    ],
)
def test_skipped_paths(paths: str, skipped: bool) -> None:
    assert {path: bool(skip_reason(path)) for path in paths.split()} == dict.fromkeys(paths.split(), skipped)
