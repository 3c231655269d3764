"""Payloads: our own, known pipelines, arbitrary payloads, detection, filters, mapping files."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recto.errors import ConfigurationError
from recto.stores import from_payload, to_payload
from recto.stores.qdrant.addresses import address_key, module_of, page_name
from recto.stores.qdrant.dialects import (
    ALIASES,
    RECTO,
    SAMPLE,
    Dialect,
    choose,
    detect,
    is_recto,
    load_dialect,
)
from recto.stores.qdrant.filters import field_filters, matches, stored_modules
from recto.testing.parts import chunk as own_chunk
from recto.types.search import Chunk, Filters

ANY = Dialect("any")
BY_URL = Dialect("by-url", page_url="url")
TEXT = "A node is a process that computes."
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda children: (
        st.lists(children, max_size=4) | st.dictionaries(st.text(max_size=8), children, max_size=4)
    ),
    max_leaves=6,
)
NAMES = sorted(
    {alias for aliases in ALIASES.values() for alias in aliases}
    | {"metadata", "source_metadata", "content_hash", "module_keys"}
)
PAYLOADS = st.dictionaries(
    st.sampled_from(NAMES) | st.text(max_size=8),
    JSON | st.dictionaries(st.sampled_from(NAMES), JSON),
    max_size=10,
)


EXAMPLES: dict[str, dict[str, Any]] = {
    entry["name"]: entry
    for entry in map(json.loads, Path(__file__).with_name("payloads.jsonl").read_text("utf-8").splitlines())
}
"""Payloads of known pipelines, and the expected fields of their chunks."""


def payload_of(name: str) -> dict[str, Any]:
    payload: dict[str, Any] = EXAMPLES[name]["payload"]
    return payload


@pytest.mark.parametrize("name", EXAMPLES)
@pytest.mark.parametrize("detected", [True, False])
def test_payloads_of_known_pipelines(name: str, detected: bool) -> None:
    payload, expected = payload_of(name), EXAMPLES[name]["expected"]
    chunk = (detect([payload]) if detected else ANY).read(7, payload)
    expected = {name: value for name, value in expected.items() if name != "module_keys"}
    defaults = {"headings": [], "chunk_index": 0, "total_chunks": 1, "source": expected["page_url"]}
    values = {field: getattr(chunk, field) for field in defaults | expected}
    assert values | {"headings": list(chunk.headings)} == defaults | expected
    assert (chunk.id, chunk.text, chunk.anchor, chunk.start_line) == ("7", TEXT, "", 0)
    digest = hashlib.sha256(TEXT.encode()).hexdigest()
    assert chunk.content_hash == (payload.get("content_hash") or digest)
    assert chunk.module_keys[0] == expected["module"]
    assert set(EXAMPLES[name]["expected"]["module_keys"]) <= set(chunk.module_keys)


def test_every_field_of_a_chunk_is_restored_from_its_payload() -> None:
    lines: dict[str, Any] = {"start_line": 11, "end_line": 13, "anchors": ("water", "rain")}
    newer: dict[str, Any] = {"book": "house", "version": "2.0", "locale": "de", "language": "ur"}
    newer |= {"revision": "r" * 64, "locales": ("ur", "fa"), "module_title": "Garden"}
    chunk = replace(own_chunk(3), **lines, **newer)
    payload = to_payload(chunk)
    assert from_payload(chunk.id, payload) == chunk
    values = {repr(getattr(chunk, part.name)) for part in fields(Chunk)}
    assert len(values) == len(fields(Chunk)), "every field of the example has a different value"
    older = {name: value for name, value in payload.items() if name not in newer}
    assert from_payload(chunk.id, older) == replace(own_chunk(3), **lines)


def test_own_payloads() -> None:
    chunk = own_chunk(3)
    for dialect in (RECTO, ANY, Dialect("chapter", module="chapter")):
        assert dialect.read(chunk.id, to_payload(chunk)) == chunk
    damaged = {**to_payload(chunk), "module_keys": None, "headings": "Title > Section", "anchor": 4}
    assert not is_recto(damaged)
    assert RECTO.read(chunk.id, damaged).headings == ("Title", "Section")
    assert RECTO.read(chunk.id, damaged).module == "ros2"


@pytest.mark.slow
@given(PAYLOADS)
def test_any_payload_can_be_read(payload: dict[str, Any]) -> None:
    chunk = detect([payload, {}]).read("x", payload)
    assert chunk.total_chunks > chunk.chunk_index >= 0
    assert chunk.module_keys[0] == chunk.module
    assert all(key == key.strip().lower() for key in chunk.module_keys)
    assert matches(chunk, Filters(modules=(chunk.module,), page_url=chunk.page_url))
    stored_modules(ANY, [payload])
    json.dumps([chunk.text, chunk.title, chunk.headings, chunk.content_hash, chunk.source])


UNUSABLE = (3.5, -1, True, math.nan, math.inf, 2**127, "three", [3], None)


@pytest.mark.parametrize("stored", ["3", " 3 ", 3.0, "3.0", *UNUSABLE])
def test_chunk_indexes_of_any_type(stored: Any) -> None:
    """Those that cannot be used count as the first."""
    chunk = ANY.read("x", {"chunk_index": stored, "total_chunks": "2"})
    assert (chunk.chunk_index, chunk.total_chunks) == ((0, 2) if stored in UNUSABLE else (3, 4))


def test_unusable_values_are_skipped() -> None:
    texts: dict[str, Any] = {"text": " ", "content": None, "text_content": ["One", "Two"]}
    chunk = ANY.read("x", {**texts, "title": 2024, "url": {}, "metadata": "none"})
    assert (chunk.text, chunk.title, chunk.page_url, chunk.module) == ("One\nTwo", "2024", "", "general")
    headings = [{"level": 2, "text": "Nodes"}, None, "QoS"]
    assert ANY.read("x", {"headings": headings}).headings == ("Nodes", "QoS")
    assert ANY.read("x", {"text": "half a pair \ud800"}).content_hash


@pytest.mark.parametrize(
    ("source", "url", "title"),
    [
        ("website", "", ""),
        ("docs/module-1-ros2/nodes.md", "docs/module-1-ros2/nodes.md", "Nodes"),
        ("https://example.org/docs/nodes", "https://example.org/docs/nodes", "Nodes"),
        ("nodes.md", "nodes.md", "nodes.md"),
    ],
)
def test_the_field_source_has_several_meanings(source: str, url: str, title: str) -> None:
    payloads: list[dict[str, Any]] = [{"source": source}, {"metadata": {"source": source}}]
    for payload in payloads:
        chunk = ANY.read("x", payload)
        assert (chunk.page_url, chunk.title, chunk.source) == (url, title, url)


MODULES = {
    "module-1-ros2": "ros2",
    "module-2-ros-2-fundamentals": "ros-2-fundamentals",
    "chapter-4-vla": "vla",
    "ch05-humanoids": "humanoids",
    "module-0-introduction-to-ros2": "introduction-to-ros2",
    **{name: name for name in ("module-1", "module1", "chapter2", "ros2-fundamentals", "community")},
}


@pytest.mark.parametrize("directory", MODULES)
def test_modules_from_directories(directory: str) -> None:
    for address in (
        f"https://example.org/docs/{directory}/page",
        f"local://docs/{directory}/page",
        f"local://docs/docs/{directory.upper()}/page/",
        f"/home/me/docs/project/docs/{directory}/deeper/page.mdx",
        f"/srv/elsewhere/{directory}/page.md",
        f"{directory}/page.md",
        f"{directory}\\page.md",
        f"i18n/ur/docusaurus-plugin-content-docs/current/{directory}/page.md",
        f"https://example.org/docs/2.0/{directory}/index?x=1#y",
    ):
        name, keys = module_of("", address)
        assert (name, directory in keys) == (MODULES[directory], True), address
    assert module_of(directory, "")[0] == MODULES[directory]
    assert {MODULES[directory], directory} <= set(module_of(directory, "https://example.org/docs/page")[1])


@pytest.mark.parametrize(
    ("raw", "address", "module"),
    [
        *(("", f"https://example.org/{path}", "intro") for path in ("docs/lab-setup", "docs/", "")),
        *(("", address, "intro") for address in ("docs/introduction/x.md", "http://[broken")),
        ("", "https://example.org/docs/module-5-hands/", "hands"),
        ("", "docs/module-1/introduction/x.md", "module-1"),
        ("", "https://example.org/blog/2021/08/welcome", "blog"),
        ("", "", "general"),
        ("general", "docs/module-1-ros2/x.md", "general"),
        ("1", "docs/module-1-simulation/x.md", "simulation"),
        ("9", "docs/x.md", "module-9"),
        *(("Docs", "", "intro"), ("intro.mdx", "", "intro"), ("1", "", "module-1")),
        *(("NVIDIA Isaac", "", "nvidia isaac"), ("Chapter 3: Sensors", "", "sensors")),
    ],
)
def test_names_have_priority_over_numbers(raw: str, address: str, module: str) -> None:
    assert module_of(raw, address)[0] == module


@pytest.mark.parametrize(
    ("address", "title"),
    [
        ("https://example.org/docs/module-1-ros2/dds_and-qos/", "Dds and qos"),
        ("docs/module-1-ros2/index.mdx", "Module 1 ros2"),
        ("https://example.org/a%20b.html#c", "A b"),
        ("https://example.org", ""),
        ("", ""),
    ],
)
def test_titles_from_addresses(address: str, title: str) -> None:
    assert page_name(address) == title


def test_detection() -> None:
    dialect = detect([payload_of("3a")] * 5)
    fields = ("content", "url", "title", "", "headings", "chunk_index", "metadata.total_chunks")
    assert dialect == Dialect("detected", *fields)
    assert "text from content" in dialect.describe()
    assert "missing: module" in dialect.describe()
    assert detect([payload_of("16")]).page_url == "full_path"
    assert detect([payload_of("5")]).module == "", "'Docs' is not a module"
    assert detect([payload_of("15")]).module == "", "a number is not a name"
    assert detect([]) == Dialect("detected")
    assert "no field is known" in detect([{}]).describe()
    assert detect([payload_of("2a")] * SAMPLE + [payload_of("10")] * 500).text == "text"


def test_detection_in_mixed_payloads() -> None:
    own = [to_payload(own_chunk(number)) for number in range(3)]
    assert detect(own) is RECTO
    assert "missing" not in RECTO.describe()
    mixed = detect([*own, payload_of("4")])
    assert (mixed.name, mixed.module) == ("detected", "module_name")
    assert set(mixed.partial) == {"text", "page_url", "page_title", "module", "section"}
    payloads = [payload_of("1"), payload_of("1"), payload_of("10")]
    dialect = detect(payloads)
    assert (dialect.text, dialect.page_url, dialect.module) == ("text", "page_url", "module_name")
    assert "module from module_name (not in every point)" in dialect.describe()
    assert [dialect.read(0, payload).text for payload in payloads] == [TEXT] * 3
    assert dialect.read(0, payloads[2]).module == "vla"


def test_module_filters_have_the_stored_values() -> None:
    other = {**payload_of("9"), "module_name": "module-2-simulation", "source_file": "x.md"}
    payloads = [payload_of("9"), other]
    dialect = detect(payloads)
    listed = stored_modules(dialect, payloads, ["module-2-simulation", "Digital Twins", "intro.mdx", 4])
    assert (listed["ros2"], listed["simulation"]) == (("module-1-ros2",), ("module-2-simulation",))
    assert listed["digital twins"] == ("Digital Twins",)
    assert listed["module-4"] == listed["4"] == (4,)
    stored = {"module_name": ["module-1-ros2", "module-2-simulation"]}
    assert field_filters(dialect, Filters(modules=("ROS2", "simulation")), listed) == stored
    assert field_filters(dialect, Filters(modules=("isaac",)), listed) is None, (
        "it is unknown how it is stored"
    )
    assert field_filters(dialect, Filters(language="de"), listed) is None, "there is no such field"


def test_module_filters_by_directory() -> None:
    payloads, filters = [payload_of("1")], Filters(modules=("module-1-ros2",))
    dialect = detect(payloads)
    assert field_filters(dialect, filters, stored_modules(dialect, payloads)) == {"module_name": ["ros2"]}
    other = {**payload_of("1"), "page_url": "local://docs/module-5-ros2-advanced/x"}
    listed = stored_modules(dialect, [*payloads, other])
    assert listed == {"ros2": ("ros2",)}
    assert field_filters(dialect, filters, listed) is None, "'ros2' would match both directories"


@pytest.mark.parametrize("name", ["2a", "3a", "5", "6", "7", "10", "12", "15", "17", "18"])
def test_without_a_module_field_the_client_filters(name: str) -> None:
    payload, module = payload_of(name), EXAMPLES[name]["expected"]["module"]
    dialect = detect([payload])
    assert field_filters(dialect, Filters(modules=(module,)), {}) is None
    chunk = dialect.read(0, payload)
    assert matches(chunk, Filters(modules=(module.upper(), "zzz")))
    assert not matches(chunk, Filters(modules=("zzz",)))
    assert not matches(chunk, Filters(modules=(module,), page_url="https://example.org/elsewhere"))


def test_partial_fields_are_filtered_by_the_client() -> None:
    dialect = detect([payload_of("1"), payload_of("10")])
    assert field_filters(dialect, Filters(modules=("ros2",)), {"ros2": ("ros2",)}) is None
    assert field_filters(dialect, Filters(page_url="x"), {}) is None
    assert field_filters(ANY, Filters(page_url="x"), {}) is None
    assert stored_modules(Dialect("theirs", module="module_name"), [payload_of("1"), payload_of("2a")]) == {}


def test_filters_on_own_fields() -> None:
    filters = Filters(modules=("ROS2 ",), page_url="LOCAL://DOCS/docs/intro.md", versions=("2.0",))
    expected = {"module_keys": ["ros2"], "page_key": ["local://docs/docs/intro"], "version": ["2.0"]}
    assert field_filters(RECTO, filters, {}) == expected
    assert field_filters(RECTO, Filters(), {}) == {}


@pytest.mark.parametrize(
    ("typed", "stored"),
    [
        ("local://docs/docs/module-1-ros2/x", "local://docs/module-1-ros2/x"),
        ("local://docs/module-1-ros2/x", "local://docs/docs/module-1-ros2/x"),
        ("local://docs/docs/intro.md", "local://docs/docs/intro"),
        ("https://Example.org/docs/a", "https://example.org/docs/a/"),
        ("https://Example.org/docs/a/", "https://Example.org/docs/a"),
        ("https://example.org/docs/a#section", "https://example.org/docs/a"),
        ("https://example.org/docs/a", "https://example.org/docs/a.mdx"),
        ("https://example.org", "https://example.org/"),
        ("docs/docs/a", "docs/a.md"),
        ("/docs/a?v=1", "/docs/a/?v=1"),
        ("C:\\docs\\a.md", "C:\\docs\\a.md"),
    ],
)
def test_spellings_of_a_url(typed: str, stored: str) -> None:
    filters = Filters(page_url=f" {typed} ")
    fields = field_filters(BY_URL, filters, {})
    assert fields is not None
    assert stored in fields["url"]
    assert matches(ANY.read(0, {"url": stored}), filters)


@settings(max_examples=50)
@given(st.from_regex(r"\A(https?://[A-Za-z]{1,5}\.org|local://docs)?(/(docs|Module-1|a_b))*/?\Z"))
def test_all_spellings_are_the_same_page(url: str) -> None:
    fields = field_filters(BY_URL, Filters(page_url=url), {})
    assert fields is not None
    assert {address_key(str(spelling)) for spelling in fields["url"]} == {address_key(url)}


def test_different_pages_do_not_match() -> None:
    chunk = ANY.read(0, {"url": "https://example.org/docs/Intro"})
    for other in ("example.org/docs/intro", "example.org/Intro", "example.com/docs/Intro"):
        assert not matches(chunk, Filters(page_url=f"https://{other}"))


def test_mapping_files(tmp_path: Path) -> None:
    fields: dict[str, Any] = {"text": "body", "page_url": "meta.link", "module": "meta.part"}
    (tmp_path / "mine.json").write_text("\ufeff" + json.dumps(fields), "utf-8")
    lines = "".join(f'{name} = "{field}"\n' for name, field in ({"name": "theirs"} | fields).items())
    (tmp_path / "mine.toml").write_text(lines, "utf-8")
    mine = Dialect("mine", **fields)
    assert load_dialect(tmp_path / "mine.json") == mine
    assert load_dialect(tmp_path / "mine.toml") == replace(mine, name="theirs")
    assert choose(mine, [payload_of("1")], is_own=False) is mine
    meta = {"link": "https://example.org/a", "part": "Hands"}
    chunk = mine.read(0, {"body": TEXT, "text": "teaser", "meta": meta, "title": "A"})
    assert (chunk.text, chunk.page_url, chunk.module, chunk.title) == (TEXT, meta["link"], "hands", "A")
    assert mine.read(0, {"body": None, "text": "teaser"}).text == "teaser"


def test_a_mapping_file_can_rename_modules(tmp_path: Path) -> None:
    renamed = {"module-2": "simulation", "Digital-Twin": "simulation"}
    (tmp_path / "modules.json").write_text(json.dumps({"modules": renamed}), "utf-8")
    aliases = load_dialect(tmp_path / "modules.json")
    for example, directory in (("16", "module-2"), ("3a", "module-2-digital-twin")):
        stored = json.loads(json.dumps(payload_of(example)).replace("module-3", "module-2"))
        chosen = choose(aliases, [stored], is_own=False)
        assert chosen == replace(detect([stored]), modules=aliases.modules)
        assert chosen.read(0, stored).module == "simulation"
        assert {"simulation", directory} <= set(chosen.read(0, stored).module_keys)
    assert choose(aliases, [], is_own=True) is RECTO


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", '{"txt": "body"}', "unknown key 'txt', did you mean 'text'"),
        *(("a.json", f'{{"text": {value}}}', "'text' must name") for value in ("3", "null", '""', '"a..b"')),
        *(("a.json", text, "maps no field") for text in ('{"name": "x"}', "{}", "[1]")),
        *(
            ("a.json", f'{{"modules": {value}}}', "'modules' must map names to names")
            for value in ('{"module-2": 2}', '["module-2"]')
        ),
        *(("a.json", text, "cannot be used") for text in ("{", "[" * 100_000, b"\xff\xfe")),
        ("a.toml", "text = ", "cannot be used"),
        ("a.toml", '[text]\na = "b"', "'text' must name"),
        *(
            (name, None, "cannot be used")
            for name in ("nowhere.json", "", "a\0b", "~nobody-here/x", "x" * 5000)
        ),
    ],
)
def test_invalid_mapping_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, content: str | bytes | None, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(ConfigurationError, match=message) as caught:
        load_dialect(Path(name))
    assert '"page_url": "meta.link"' in caught.value.hint
