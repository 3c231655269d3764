"""Test the MCP server as a process, over standard input and output and over HTTP."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from recto.contracts import QUERY_COLLECTION
from recto.errors import install_command
from recto.search.retriever import Retriever
from recto.server.limits import MAX_BODY
from recto.server.mcp_server import http_app, replace_lone_surrogates
from recto.settings import SAMPLE_COLLECTION
from tests.running import ROOT, environment, recto, start
from tests.server.http.service import Caller, Reply, ThreadServer
from tests.server.mcp.client import book_server, connected, failure, text_of

KEY = "a-long-random-text-1234567890"
OTHER_KEY = "another-long-random-text-0987654321"
QUESTION = "Was ist ROS 2 – wörtlich? 🤖"


async def ask_for_everything(client: Client) -> dict[str, Any]:
    """Call tools and resources, and one tool twenty times at once."""
    await client.list_tools()
    search = await client.call_tool("search_book", {"query": QUESTION, "top_k": 2})
    resources = (await client.list_resources()).resources
    many = (client.call_tool("search_book", {"query": QUESTION}) for _ in range(20))
    return {
        "search": search,
        "page": await client.call_tool("read_page", {"url": search.structured_content["results"][0]["url"]}),
        "refused": await client.call_tool("search_book", {"query": ""}),
        "resource": await client.read_resource(resources[0].uri),
        "many": await asyncio.gather(*many),
    }


def check(answers: dict[str, Any], retriever: Retriever) -> None:
    first = retriever.search(QUESTION, top_k=2).hits[0].chunk
    results = answers["search"].structured_content["results"]
    assert results[0]["text"].startswith(f"# {first.title} > ")
    assert first.text[:60] in results[0]["text"]
    assert first.text[:60] in answers["page"].structured_content["markdown"]
    assert "Query cannot be empty" in failure(answers["refused"])
    assert retriever.page(min(retriever.pages())).markdown() in answers["resource"].contents[0].text
    assert {result.structured_content["results"][0]["url"] for result in answers["many"]} == {first.url}
    assert all(first.url in text_of(result) for result in answers["many"])


def test_standard_input_and_output(sample_home: Path, retriever: Retriever) -> None:
    arguments, variables = ["-m", "recto", "mcp"], environment(sample_home)
    server = StdioServerParameters(command=sys.executable, args=arguments, env=variables, cwd=ROOT)
    check(connected(server, ask_for_everything), retriever)


def test_only_the_protocol_is_on_standard_output(sample_home: Path) -> None:
    """Warnings go to standard error, invalid input gets a protocol error, and end of input ends the server."""
    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": ""}}
    search = {"name": "search_book", "arguments": {"query": "robot"}}
    messages: list[dict[str, Any]] = [
        {"id": 1, "method": "initialize", "params": client},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": search},
    ]
    command = [sys.executable, "-m", "recto", "mcp", "--collection", "no-such-book"]
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    env = environment(sample_home, PYTHONIOENCODING="ascii")
    with subprocess.Popen(command, cwd=ROOT, env=env, encoding="utf-8", **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        sent = (json.dumps({"jsonrpc": "2.0"} | message) for message in messages)
        process.stdin.write("\n".join(("this is not JSON", *sent, "")))
        process.stdin.flush()
        lines = [json.loads(process.stdout.readline())]
        while lines[-1].get("id") != 2:
            lines.append(json.loads(process.stdout.readline()))
        rest, told = process.communicate(timeout=60)
    assert rest == ""
    assert process.returncode == 0
    assert all(line["jsonrpc"] == "2.0" for line in lines)
    result = lines[-1]["result"]
    assert result["isError"]
    assert "Collection 'no-such-book' does not exist" in result["content"][0]["text"]
    assert "[WARNING] Configuration error: Collection 'no-such-book' does not exist" in told
    assert "Traceback" not in told


@pytest.fixture(scope="module")
def local(retriever: Retriever) -> Iterator[ThreadServer]:
    with ThreadServer(lambda: http_app(book_server(retriever), "127.0.0.1", ())) as server:
        yield server


def post(server: Caller, **headers: str) -> Reply:
    fields = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    return server.ask("POST", "/mcp", body, {**fields, **headers})


def test_http(local: ThreadServer, retriever: Retriever) -> None:
    url = f"http://127.0.0.1:{local.port}/mcp"
    check(connected(url, ask_for_everything), retriever)
    check(connected(url, ask_for_everything, mode="legacy"), retriever)


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 200),
        ({"host": "localhost:8001"}, 200),
        ({"host": "localhost.evil.example.org"}, 400),
        ({"host": "localhost:8001@evil.example.org"}, 400),
        ({"origin": "http://localhost:1@evil.example.org"}, 403),
        ({"origin": "https://evil.example.org"}, 403),
    ],
)
def test_foreign_hosts_and_origins_are_refused(local: Caller, headers: dict[str, str], code: int) -> None:
    assert post(local, **headers).status == code


def test_a_public_server_requires_a_key(sample_home: Path, retriever: Retriever) -> None:
    options = ("--http", "--port", "0", "--host", "0.0.0.0")
    process = start(sample_home, "mcp", *options, RECTO_API_KEY=f"{KEY}, {OTHER_KEY}")
    try:
        assert process.stdout is not None
        match = re.search(r"at (http://[\d.]+:(\d+)/mcp)", process.stdout.readline())
        assert match
        server = Caller()
        server.port = int(match[2])
        for given in ("", f"Bearer {KEY}x", KEY, "Bearer "):
            reply = post(server, authorization=given)
            assert reply.status == 401
            assert reply.headers["www-authenticate"].startswith("Bearer")
            assert "Authorization: Bearer" in reply.json()["hint"]
        for host in ("book.example.org", "evil\x9b31m.example.org"):
            assert post(server, authorization=f"bearer {OTHER_KEY}", host=host).status == 200

        async def ask() -> dict[str, Any]:
            async with (
                httpx2.AsyncClient(headers={"authorization": f"Bearer {KEY}"}, timeout=60) as sender,
                Client(streamable_http_client(match[1], http_client=sender)) as client,
            ):
                return await ask_for_everything(client)

        check(asyncio.run(ask()), retriever)
    finally:
        process.send_signal(signal.SIGINT)
        told, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert KEY not in told
    assert "Traceback" not in told
    assert "\x9b" not in told, "a header cannot control the terminal"


def test_several_books_over_http(sample_home: Path) -> None:
    names = ("--collection", SAMPLE_COLLECTION, "--collection", "no-such-book")
    process = start(sample_home, "mcp", "--http", "--port", "0", *names)
    try:
        assert process.stdout is not None
        match = re.search(r"at (http://[\d.]+:\d+/mcp)", process.stdout.readline())
        assert match

        async def ask(client: Client) -> tuple[Any, Any, Any]:
            listed = await client.call_tool("list_books", {})
            found = await client.call_tool("search_book", {"query": QUESTION, "book": SAMPLE_COLLECTION})
            refused = await client.call_tool("search_book", {"query": QUESTION, "book": QUERY_COLLECTION})
            return listed.structured_content["books"], found, refused

        (sample, missing), found, refused = connected(match[1], ask)
        assert sample["pages"] > 1
        assert "does not exist" in missing["error"]
        assert not found.is_error
        assert f"The books are: {SAMPLE_COLLECTION}, no-such-book." in failure(refused)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            "--http --host 0.0.0.0",
            2,
            "0.0.0.0 is reachable from other machines, and RECTO_API_KEY is not set",
        ),
        ("--http --host ::", 2, "RECTO_API_KEY is not set"),
        ("--http --host book.example.org", 2, "RECTO_API_KEY is not set"),
        ("--port 9000", 4, "--host and --port need --http"),
        ("--http --port 70000", 4, "70000 is not in the range"),
        ("--collection a/b", 4, "not a usable collection name"),
    ],
)
def test_invalid_options(sample_home: Path, arguments: str, code: int, said: str) -> None:
    done = recto(sample_home, "mcp", *arguments.split())
    assert (done.returncode, done.stdout) == (code, "")
    assert said in done.stderr


def test_without_the_extra(sample_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "recto.server.mcp_server", None)
    done = recto(sample_home, "mcp")
    assert done.returncode == 2
    assert install_command("mcp") in done.stderr


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (r"cut \ud83e", "cut \ufffd"),
        (r"\uDD16 cut", "\ufffd cut"),
        (r"\ud83e\ud83e\udd16", "\ufffd\U0001f916"),
        (r"whole \ud83e\uDD16", "whole \U0001f916"),
        (r"a path C:\\ud83e", r"a path C:\ud83e"),
        (r"\\\ud83e", "\\\ufffd"),
    ],
)
def test_lone_surrogates_are_replaced(sent: str, read: str) -> None:
    assert json.loads(replace_lone_surrogates(f'"{sent}"')) == read


def test_large_bodies_and_streams_are_refused(local: ThreadServer) -> None:
    large = local.ask("POST", "/mcp", raw=b" " * (MAX_BODY + 1))
    assert (large.status, large.error) == (413, "The body is larger than 65536 bytes")
    stream = local.get("/mcp", accept="text/event-stream")
    assert (stream.status, stream.headers["allow"]) == (405, "POST")


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/"])
def test_the_host_is_checked_before_anything_else(local: ThreadServer, path: str) -> None:
    """A redirect to a host that the client chose would help an attacker."""
    reply = local.ask("POST", path, {}, {"Host": "evil.example"})
    assert (reply.status, reply.error) == (400, "This service does not accept that host name")
    assert "location" not in reply.headers
