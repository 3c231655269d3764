"""What is printed: width, colors, highlighted words, and no text that controls the terminal or forges a line."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from recto._util.text import to_json
from recto.cli import echo, echo_text, render
from recto.cli.render import Style, cells, cut, results, results_json, wrap
from recto.search.display import NOT_COVERED, UNCLEAR, words_to_match
from recto.search.response import coverage
from recto.server.listening import JsonFormatter
from recto.testing.parts import chunk
from recto.types.search import NO_FILTERS, Filters, Hit, Outcome, PageGroup, SearchResponse, Timings
from tests.cli.terminals import piped
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import status
from tests.running import Done, recto, retrieve, run

UNSAFE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
OUR_STYLES = re.compile(r"\x1b\[(?:[012]|3[1236])m")
FORGED = "[ERROR] forged"
NASTY = f"x\x1b[2J\x1b]0;t\x07\x9b31m\u202e\x85\u2028\r\x7f\n{FORGED}"

nasty_text = st.text(
    st.sampled_from("ab \t\n\r\x07\x08\x0b\x1b[31m\x7f\x80\x85\x9b\u2028\u2029\u202a\u202e\u2066\u2069")
    | st.characters(exclude_categories=["Cs"], exclude_characters="/\0"),
    min_size=1,
    max_size=40,
)


def assert_clean(*texts: str) -> None:
    for text in texts:
        assert not UNSAFE.search(text), repr(text)
        assert not any(line.startswith(FORGED) for line in text.splitlines()), text


def assert_clean_output(done: Done) -> None:
    assert_clean(done.stdout, done.stderr)


@settings(max_examples=20)
@given(nasty_text, nasty_text)
@example("a", f"a\n{FORGED}.md")
def test_any_file_name_and_title(title: str, name: str) -> None:
    """A run prints as many lines for any name as for a harmless one."""
    with tempfile.TemporaryDirectory() as folder:
        book = Path(folder) / "book"
        (book / "part").mkdir(parents=True)
        encoded = os.fsencode(name)[:200].decode("utf-8", "ignore")
        page = book / "part" / f"n{encoded}.md"
        page.write_bytes(f"---\ntitle: {json.dumps(title)}\n---\n# {title}\n\nText.\n".encode())
        (book / "part" / f"b{encoded}.md").write_bytes(b"\xff")
        home = Path(folder) / "home"
        done = recto(home, "index", str(book), "--collection", "c", "--dry-run", "--verbose")
        assert_clean_output(done)
        # Only names of pages are in these lines; the text before them is ours.
        ours = ("Plan for ", "  Pages: ", "  Chunks: ", "  Embedding: ", "  Module ", "  part ", "  new ")
        assert len(done.stdout.splitlines()) == len(ours)
        assert all(map(str.startswith, done.stdout.splitlines(), ours)), done.stdout
        (warning,) = done.stderr.splitlines()
        assert warning.startswith("[WARNING] Left out part/")
        done = recto(home, "index", str(book), "--collection", "c", "--dry-run", "--json")
        assert_clean_output(done)
        assert json.loads(done.stdout)["pages"] == 1


@settings(max_examples=50)
@given(
    name=nasty_text, text=nasty_text, padding=st.integers(0, 80), verbose=st.booleans(), color=st.booleans()
)
@example(name=NASTY, text=NASTY, padding=0, verbose=True, color=True)
def test_any_text_in_results(name: str, text: str, padding: int, verbose: bool, color: bool) -> None:
    title = f"{name} {'x' * padding} {FORGED}"  # after some padding, it is wrapped to the beginning of a line
    names: dict[str, Any] = {"title": title, "module": title, "page_url": f"x:{title}"}
    bad = replace(chunk(0, text=text), headings=(title, text), **names)
    hits = (Hit(0.5, bad), Hit(0.4, chunk(1, text=text)))
    found = (Filters((title,), title), title, Outcome.FOUND, Timings(0, 0, 0))
    response = SearchResponse(text, hits, *found, warnings=(title,))
    # Messages begin with words of ours; the names in them can be anything.
    empty = replace(response, hits=(), outcome=Outcome.NO_MATCH, message=f"Nothing matches {title}")
    grouped = replace(response, groups=(PageGroup(hits),))
    for shown in (response, grouped, empty):
        printed = render.results(shown, (), render.Style(color=color), verbose=verbose)
        assert_clean(OUR_STYLES.sub("", printed) if color else printed)


def test_styles_are_printed_and_others_are_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    echo_text(f"{render.Style(color=True).bold('bold')}\x1b[2J\x1b[5mtext\n\ttext", color=True)
    echo_text("\x1b[1mtext\nline")
    echo("a\nb\tc\x1b[1m", "d")
    assert capsys.readouterr().out == (
        "\x1b[1mbold\x1b[0m\\u001b[2J\\u001b[5mtext\n\ttext\n"
        "\\u001b[1mtext\nline\n"
        "a\\u000ab\\u0009c\\u001b[1m\nd\n"
    )


@settings(max_examples=50)
@given(st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
@example([NASTY])
def test_json_stays_json(data: object) -> None:
    text = to_json(data)
    assert_clean(text)
    if "\\ud" not in json.dumps(data):  # UTF-8 cannot encode lone surrogates
        assert json.loads(text) == data


@pytest.fixture(scope="module")
def nasty_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An index of a book with a nasty name, title and module; the book has changed since."""
    home = tmp_path_factory.mktemp("nasty") / "home"
    name = NASTY.replace("/", "")
    module = home.parent / "book" / f"mod{name}"
    module.mkdir(parents=True)
    page = module / f"page{name}.md"
    title = json.dumps(f"Pumps {NASTY}")
    page.write_text(f"---\ntitle: {title}\n---\n# Pumps {NASTY}\n\nA pump {NASTY} moves water.\n", "utf-8")
    (module / f"bad{name}.md").write_bytes(b"\xff")
    (module / f"link{name}").symlink_to(f"/nowhere/{name}")
    for more in ([], ["--verbose"], ["--json"]):
        done = recto(home, "index", str(home.parent / "book"), "--collection", "nasty", *more)
        assert done.returncode == 1, done.stderr
        assert_clean_output(done)
    page.write_text(f"# Pumps {NASTY}\n\nA pump moves oil.\n", "utf-8")
    (module / f"new{name}.md").write_text("# New\n\nA new page.\n")
    return home


COMMANDS = """
search pump; search pump --verbose; search pump --by-page; search pump --json; search NASTY;
search pump --module NASTY; explain pump --expect NASTY; explain NASTY; coverage --verbose; coverage --json;
doctor; doctor --json; validate --suite SUITE; validate --suite SUITE --verbose; validate --suite NASTY;
validate --suite SUITE --tag NASTY
"""
ERRORS = """
NASTY; index NASTY; index https://NASTY; watch NASTY; search x --collection NASTY; search x --NASTY;
rollback NASTY; suite lint NASTY
"""


@pytest.mark.parametrize("line", [*map(str.strip, COMMANDS.split(";"))])
def test_commands(nasty_home: Path, tmp_path: Path, line: str) -> None:
    suite = tmp_path / "suite.json"
    entry = {"query": f"pump {NASTY}", "expect": {"page": f"page{NASTY}"}, "tags": [NASTY]}
    good = {"query": f"A pump {NASTY}", "expect": {"passage": "moves water"}, "tags": [NASTY]}
    suite.write_text(json.dumps({"name": NASTY, "queries": [entry, good]}))
    arguments = [word.replace("SUITE", str(suite)).replace("NASTY", f"pump {NASTY}") for word in line.split()]
    done = recto(nasty_home, *arguments, "--collection", "nasty")
    assert done.stdout or done.stderr
    assert_clean_output(done)
    if "--json" in line:
        json.loads(done.stdout)


@pytest.mark.parametrize("line", [*map(str.strip, ERRORS.split(";"))])
def test_errors(home: Path, line: str) -> None:
    done = recto(home, *(word.replace("NASTY", NASTY) for word in line.split()))
    assert done.returncode
    assert done.stderr.startswith("[ERROR]")
    assert_clean_output(done)


def test_settings_and_messages_of_a_server(home: Path, qdrant: QdrantDouble) -> None:
    qdrant.always(status(400, {"status": {"error": NASTY}}))
    server = {"RECTO_STORE": "server", "QDRANT_URL": qdrant.url, "QDRANT_API_KEY": "x"}
    names = ("RECTO_STORE", "RECTO_MODEL", "RECTO_THREADS", "COLLECTION_NAME")
    for variables in (*({name: NASTY} for name in names), server | {"RECTO_EMBEDDER": "local"}):
        for command in (["collections"], ["doctor"], ["search", "x"]):
            assert_clean_output(recto(home, *command, **variables))


def test_the_query_contract_and_the_shell(nasty_home: Path) -> None:
    for more in ([], ["--verbose"], ["--json"]):
        assert_clean_output(retrieve(nasty_home, f"pump {NASTY}", "--collection", "nasty", *more))
    lines = ["pump", ":verbose", "pump", ":module", ":select 1 pump"]  # `:page` prints lines as written
    lines += [f":{command} x\x1b" for command in ("module", "top", "mode", "page", "select", "x\x9b")]
    done = piped(nasty_home, "\n".join(lines), "--collection", "nasty")
    assert done.stdout.count("Pumps") > 3
    assert_clean_output(done)


def test_log_lines_of_libraries() -> None:
    program = (
        "import click, logging\n"
        "from recto.cli import run\n"
        "@click.command()\n"
        "def log():\n"
        f"    logging.getLogger('library').warning('path %s', {NASTY!r})\n"
        "run(log, [], 'log')\n"
    )
    text = run([sys.executable, "-c", program], Path("/nowhere")).stderr
    assert_clean(text)
    assert text.startswith("[WARNING] path x\\u001b[2J")


def test_log_lines_of_the_server() -> None:
    record = logging.LogRecord("recto", logging.INFO, "", 0, "request", None, None)
    record.recto_fields = {"path": NASTY}
    line = JsonFormatter().format(record)
    assert_clean(line)
    assert "\n" not in line
    assert json.loads(line)["path"] == NASTY


def test_all_forms_of_a_word_are_highlighted() -> None:
    words = words_to_match("How are robots simulated with c++?", None)
    text = "We simulate a robot; simulating robots in c++."
    shown = Style(80, color=True).highlight(text, words)
    assert re.findall(r"\x1b\[1m(.*?)\x1b\[0m", shown) == ["simulate", "robot", "simulating", "robots", "c"]
    assert re.sub(r"\x1b\[\d*m", "", shown) == text
    assert Style(80).highlight(text, words) == text


@given(st.text(), st.integers(20, 100))
def test_wrapped_lines_fit_and_lose_nothing(text: str, width: int) -> None:
    lines = list(wrap(text, width, "  "))
    assert all(cells(line) <= width for line in lines)
    assert "".join("".join(lines).split()) == "".join(text.split())


def test_wide_characters_take_two_columns() -> None:
    assert cells("ロボット") == 8
    assert list(wrap("ロボット" * 4, 20)) == ["ロボットロボットロボ", "ットロボット"]
    assert cut("ロボット", 8) == "ロボット"
    assert cells(cut("ロボット", 7)) <= 7


def test_the_note_the_marks_and_the_number_agree() -> None:
    hits = (Hit(0.9, chunk(0)), Hit(0.2, chunk(1)))
    for number in (0.0, 0.249, 0.25, 0.499, 0.5, 1.0):
        found = SearchResponse("soil", hits, NO_FILTERS, "books", Outcome.FOUND, Timings(0, 0, 0))
        response = replace(found, noise_floor=0.5, answerable=number, coverage=coverage(number))
        printed = results(response, (), Style(80), verbose=False)
        assert (NOT_COVERED in printed) == (number < 0.25)
        assert (UNCLEAR in printed) == (0.25 <= number < 0.5)
        assert printed.count(" weak  ") == (2 if number < 0.25 else 1), "the second is below the noise floor"
        data = json.loads(results_json(response, ()))
        assert (data["answerable"], data["coverage"]) == (number, response.coverage)
        assert [hit["above_noise"] for hit in data["results"]] == [True, False]
