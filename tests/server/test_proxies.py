"""Test the addresses of visitors behind proxies."""

from __future__ import annotations

import ipaddress
from time import process_time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.errors import ConfigurationError
from recto.server.auth import MAX_HEADER, check_networks, parse_address, parse_forwarded, visitor_address

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
def test_every_valid_list_is_read(
    nodes: list[tuple[Address, int | None, bool]], separator: str, more: str
) -> None:
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
