"""Test the JavaScript client in Node against a real service, and its types."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from recto.server.http import ServeOptions
from recto.server.http.app import WEB
from recto.settings import Settings
from scripts.make_client_types import TYPES, build
from tests.server.http.service import Service
from tests.server.node import program, run_node

KEY = "a-key-of-twenty-chars"

RUN = """
import { createServer } from "node:http";
import { RectoClient, RectoError } from "./client.js";
const failed = async (promise) => {
  try {
    return { value: await promise };
  } catch (error) {
    const { name, message, status, hint, retryAfter } = error;
    return { name, message, status, hint, retryAfter, known: error instanceof RectoError };
  }
};
const [url, silent, closed] = process.argv.slice(2);
const client = new RectoClient({ url, timeout: 60_000 });
const pages = await client.pages();
const controller = new AbortController();
const aborted = failed(new RectoClient({ url: silent }).search("soil", { signal: controller.signal }));
controller.abort();
const foreign = createServer((_, response) => response.end("<p>Another website"));
await new Promise((resolve) => foreign.listen(0, "127.0.0.1", resolve));
console.log(JSON.stringify({
  search: await client.search("How is jam made?", { top_k: 2, module: "kitchen", group_by: "page", html: true }),
  batch: await client.batch(["jam", "beans"], { top_k: 1 }),
  pages,
  page: await client.page(pages.pages[0].url, { query: "jam", html: true }),
  empty: await failed(client.search(" ")),
  missing: await failed(new RectoClient({ url: url + "/", collection: "nope" }).search("jam")),
  foreign: await failed(new RectoClient({ url: `http://127.0.0.1:${foreign.address().port}` }).modules()),
  timeout: await failed(new RectoClient({ url: silent, timeout: 20 }).search("jam")),
  unreachable: await failed(new RectoClient({ url: closed }).search("jam")),
  aborted: await aborted,
  ended: await failed(client.search("jam", { signal: AbortSignal.abort() })),
}));
process.exit();
"""

WITH_KEY = """
import { RectoClient } from "./client.js";
const [url, key] = process.argv.slice(2);
const client = new RectoClient({ url });
const refused = await client.modules().catch(({ status, hint }) => ({ status, hint }));
client.key = key;
const limited = await client.modules().then(() => client.modules()).catch((error) => error.retryAfter);
console.log(JSON.stringify({ refused, limited }));
"""


def run(directory: Path, service: Service, script: str, *arguments: str) -> Any:
    """Run a script with the client that the service serves."""
    (directory / "client.js").write_bytes(service.get("/client.js").body)
    return run_node(directory, script, f"http://127.0.0.1:{service.port}", *arguments)


@pytest.fixture(scope="module")
def answers(house_service: Service, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # bound, but nobody listens
        ports = (f"http://127.0.0.1:{one.getsockname()[1]}" for one in (silent, closed))
        return run(tmp_path_factory.mktemp("client"), house_service, RUN, *ports)


def test_requests(answers: dict[str, Any]) -> None:
    search = answers["search"]
    assert (search["mode"], search["outcome"]) == ("hybrid", "found")
    assert {hit["module"] for hit in search["results"]} == {"kitchen"}
    assert search["groups"]
    assert search["results"][0]["html"]
    assert [len(one["results"]) for one in answers["batch"]["responses"]] == [1, 1]
    assert answers["page"]["url"] == answers["pages"]["pages"][0]["url"]
    assert answers["page"]["chunks"][0]["html"]


def test_errors(answers: dict[str, Any]) -> None:
    for name, status, words in (
        ("empty", 400, "empty"),
        ("missing", 404, "no such collection"),
        ("foreign", 502, "not valid"),
        ("timeout", 408, "in time"),
        ("unreachable", 0, "does not answer"),
    ):
        error = answers[name]
        assert (error["name"], error["known"], error["status"]) == ("RectoError", True, status)
        assert words in error["message"]
        assert error["retryAfter"] == 0
        assert error["hint"] or name in ("empty", "foreign")
    for name in ("aborted", "ended"):
        assert (answers[name]["name"], answers[name]["known"]) == ("AbortError", False)


def test_keys_and_rate_limits(house_settings: Settings, tmp_path: Path) -> None:
    with Service(house_settings, ServeOptions(keys=(KEY,), rate=1)) as service:
        errors = run(tmp_path, service, WITH_KEY, KEY)
    assert errors["refused"] == {"status": 401, "hint": "Send the header `Authorization: Bearer KEY`."}
    assert errors["limited"] > 0


def test_the_types_are_those_of_the_description_and_the_client(tmp_path: Path) -> None:
    """The part that is written by hand declares the methods that the client has, and no others."""
    declared = TYPES.read_text("utf-8")
    assert declared == build(), "run `uv run --group test python -m scripts.make_client_types`"
    script = """
import { RectoClient } from "./client.js";
console.log(JSON.stringify(Object.getOwnPropertyNames(RectoClient.prototype)));
"""
    shutil.copy(WEB / "client.js", tmp_path)
    by_hand = declared.partition("class RectoClient {")[2].partition("\n}")[0]
    named = re.findall(r"^  (\w+)\(", by_hand, re.MULTILINE)
    assert sorted(named) == sorted(run_node(tmp_path, script))


USE = """
import { RectoClient, RectoError, type Hit } from "./client.js";
const client = new RectoClient({ url: new URL("https://book.example/recto/"), key: "recto_pk_x", timeout: 1000 });
const controller = new AbortController();
const found = await client.search("soil", { top_k: 3, module: ["a", "b"], mode: "lexical", signal: controller.signal });
const hits: Hit[] = found.results;
const score: number | null = hits[0].dense;
const page = await client.page(hits[0].page_url, { query: "soil", html: true });
const titles: string[] = (await client.modules({ collection: "x" })).modules.map((module) => module.title);
client.related("text", { question: null }).catch((error: RectoError) => error.retryAfter + error.status);
// @ts-expect-error: not a mode
client.search("soil", { mode: "best" });
// @ts-expect-error: not a field of /v1/related
client.related("text", { group_by: "page" });
// @ts-expect-error: a response has no such field
found.questions;
// @ts-expect-error: a query is text
client.batch([5]);
export { page, score, titles };
"""


@pytest.mark.slow
def test_the_types_are_valid(tmp_path: Path) -> None:
    """Check the types with the TypeScript compiler of the npm registry."""
    shutil.copy(TYPES, tmp_path)
    (tmp_path / "use.ts").write_text(USE, "utf-8")
    install = f"{program('npm')} install --no-audit --no-fund --prefix {tmp_path} typescript@5"
    check = (
        f"{tmp_path}/node_modules/.bin/tsc --noEmit --strict --target es2022 --module es2022 "
        "--moduleResolution bundler --lib es2022,dom use.ts client.d.ts"
    )
    for command in (install, check):
        pipes: dict[str, Any] = {"capture_output": True, "text": True, "timeout": 300}
        done = subprocess.run(command.split(), check=False, cwd=tmp_path, **pipes)
        assert done.returncode == 0, done.stdout + done.stderr
