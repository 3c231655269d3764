"""The page of a run: whole, harmless, the same for the same run, and with every number of it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from recto.evaluation import report
from recto.evaluation.baseline import Comparison, checks, compare, make_baseline, parse_threshold
from recto.evaluation.binding import Missing
from recto.evaluation.report import environment, validation_markdown, validation_page
from recto.evaluation.runs import QueryResult, Run, run_suite
from recto.evaluation.suites import load_suite
from recto.search.retriever import Retriever
from recto.testing.parts import chunk
from recto.types.index import EmbedderFingerprint, Fingerprint
from recto.types.search import Hit
from tests.evaluation.report.reading import HOSTILE, TRICKS, WHEN, nodes, one, read, said
from tests.running import recto


def question(query: str, page: str, *tags: str) -> dict[str, Any]:
    """Return an entry that expects a page, and its module if it has tags."""
    module = {"module": page.split("/", maxsplit=1)[0].rpartition("-")[2]} if tags else {}
    return {"query": query, "expect": {"page": page, **module}, "tags": list(tags)}


QUESTIONS: list[dict[str, Any]] = [
    question("how do I keep weeds down", "module-1-garden/01-soil#mulch", "plants"),
    question("when are beans sown", "module-1-garden/02-seeds", "plants"),
    question("how is a knife sharpened", "module-2-kitchen/04-knives", "tools"),
    question("repairing a puncture", "module-3-workshop/02-bicycles#flat-tyres", "tools"),
    question("the colour of wires", "module-1-garden/04-roses"),
    {"query": "tides of the northern sea", "expect": {"nothing": True}},
]


def suite_file(directory: Path, entries: list[dict[str, Any]]) -> Path:
    path = directory / "suite.json"
    path.write_text(json.dumps({"name": "house questions", "queries": entries}), "utf-8")
    return path


@pytest.fixture(scope="module")
def run(house_retriever: Retriever, tmp_path_factory: pytest.TempPathFactory) -> Run:
    suite = load_suite(suite_file(tmp_path_factory.mktemp("suite"), QUESTIONS))
    return run_suite(house_retriever, suite)


def page(run: Run, comparison: Comparison | None = None, noise_floor: float | None = 0.5, *gates: str) -> str:
    gate = checks(run, tuple(map(parse_threshold, gates)), comparison)
    return validation_page(run, gate, comparison, noise_floor=noise_floor, when=WHEN)


def compared(run: Run) -> tuple[Run, Comparison]:
    """The run as if one expected place had come at rank 3 before, and another were lost now."""
    first, second, *others = run.answers
    later = (*first.found[1:3], first.found[0], *first.found[3:])
    moved = replace(first, found=later, ranks=(3,), measures=first.measures | {"MRR": 1 / 3})
    none = dict.fromkeys(second.measures, 0.0)
    gone = replace(second, found=second.found[-5:], ranks=(), passed=False, measures=none)
    now = replace(run, answers=(first, gone, *others))
    return now, compare(now, make_baseline(replace(run, answers=(moved, second, *others))))


def test_every_number_of_the_run(run: Run) -> None:
    tree = read(page(run))
    assert said(tree, "h1") == "Validation of house"

    def shows(part: str, *texts: str) -> None:
        text = said(tree, part)
        assert [one for one in texts if one not in text] == [], part

    for name, score in run.scores().items():
        interval = f"{score.mean:.3f} {score.low:.3f} to {score.high:.3f} {score.count}"
        shows("#measures", f"{name}: mean {score.mean:.3f}", interval)
    for part, groups in (("#tags", run.by_tag()), ("#confusion", run.by_module())):
        for name, scores in groups.items():
            shows(part, name, *(f"{one.mean:.3f} {one.low:.3f} to {one.high:.3f}" for one in scores.values()))
    for rank, count in run.ranks().items():
        shows("#ranks", f"{rank if rank != 'none' else f'not in {run.depth}'} {count}")
    for answer in run.answers:
        shows("#questions", answer.query, f"{answer.found[0].score:.3f} {answer.ms:.1f}")
        shows("#questions", *(f"{value:.3f}" for value in answer.measures.values()))
    made = run.fingerprint
    assert made is not None
    shows("header", run.suite, run.suite_digest, run.collection, run.generation, made.content_hash)
    shows("header", str(made.embedder), "2026-01-02 03:04:05 UTC", f"in {run.seconds:.2f} s", "below 0.500")


def test_the_confusion_of_modules(run: Run) -> None:
    tree = read(page(run))
    table = nodes(tree, "#confusion table")[0]
    names = [cell.text() for cell in table.css("thead th")][1:]
    shown = {
        one(row, "th").text(): dict(zip(names, (cell.text() for cell in row.css("td")), strict=True))
        for row in table.css("tbody tr")
    }
    for expected, row in run.confusion().items():
        assert {name: int(count) for name, count in shown[expected].items() if count.isdigit()} == row


def test_the_verdict_has_its_reasons(run: Run) -> None:
    gate = checks(run, (parse_threshold("Hit@1>=0.99"), parse_threshold("MRR>0.1")))
    verdict = said(read(validation_page(run, gate, None, noise_floor=None, when=WHEN)), ".verdict")
    assert verdict.startswith("✗ Failed")
    for check in gate:
        assert f"{'holds' if check.holds else 'fails'} {check.name} : {check.reason}" in verdict
    assert said(read(page(run, None, None, "MRR>0.1")), ".verdict").startswith("✓ Passed")


def test_the_worst_with_what_was_found_instead(run: Run) -> None:
    (answer,) = [answer for answer in run.answers if answer.query == "the colour of wires"]
    articles = nodes(read(page(run, noise_floor=0.99)), "#worst article")
    article = next(node for node in articles if answer.query in node.text())
    text = " ".join(article.text(separator=" ").split())
    for found in answer.found[: run.top_k]:
        assert found.chunk.url in text
        assert f"{found.score:.3f} noise" in text
    assert "expected module-1-garden/04-roses" in text
    assert len(article.css("line.mark")) == len(article.css("tbody tr"))
    without = read(page(run, noise_floor=None))
    assert not nodes(without, "line.mark")
    assert "recto calibrate" in said(without, "#worst")


def test_what_changed(run: Run) -> None:
    now, comparison = compared(run)
    tree = read(page(now, comparison))
    text = said(tree, "#comparison")
    for delta in comparison.deltas:
        change = delta.delta
        interval = f"{change.mean:+.3f} {change.low:+.3f} to {change.high:+.3f}".replace("-", "−")
        assert f"{delta.before:.3f} {delta.now:.3f} {interval} {change.count} {delta.p_value:.3f}" in text
    headings = [node.text() for node in nodes(tree, "#comparison h3")]
    assert [heading.split(":")[0] for heading in headings] == ["Worse", "Better"]
    worse, better = nodes(tree, "#comparison h3 ~ .box")[:2]
    assert "when are beans sown" in worse.text()
    assert "how do I keep weeds down" in better.text()
    assert [cell.text() for cell in better.css("td.number")] == ["3", "1"]
    places = next(change for change in comparison.changes if change.query == "when are beans sown")
    assert places.entered
    for sign, these in (("+", places.entered), ("−", places.left)):
        for place in these:
            assert f"{sign} {place}" in " ".join(worse.text(separator=" ").split())
    assert "#comparison" not in page(run), "no comparison, no section and no link to it"


def test_what_is_not_in_the_index(run: Run) -> None:
    missing = Missing("lost", "where is the lost page", "no/such#page", "such/a#page")
    text = said(read(page(replace(run, unmeasured=(missing,), partial=(missing,)))))
    assert "where is the lost page UNMEASURED no/such#page such/a#page" in text
    assert "where is the lost page in part no/such#page such/a#page" in text
    assert "1 question UNMEASURED" in text


def hostile(run: Run) -> Run:
    nasty = HOSTILE + TRICKS
    found = (
        Hit(0.9, replace(chunk(0, module=nasty), page_url="javascript:alert(1)", anchor=nasty)),
        Hit(0.8, replace(chunk(1, module=nasty), page_url=f"https://example.org/{nasty}", anchor="")),
        Hit(-0.2, replace(chunk(2), page_url="https://example.org/page", anchor="part")),
    )
    scores, names = {"MRR": 0.0, "Hit@5": 0.0}, (nasty,)
    answer = QueryResult(nasty, f"{nasty} asked", names, nasty, names, names, found, (), False, scores, 1.0)
    model = EmbedderFingerprint(nasty, nasty, 3, nasty)
    made = Fingerprint(model, nasty, nasty, nasty, nasty, 1, nasty, nasty)
    missing = (Missing(nasty, nasty, nasty, nasty),)
    named = replace(run, suite=nasty, suite_digest=nasty, collection=nasty, generation=nasty)
    return replace(named, answers=(answer, answer), fingerprint=made, unmeasured=missing, partial=missing)


def test_hostile_text_stays_text(run: Run) -> None:
    now = hostile(run)
    earlier = tuple(replace(answer, found=answer.found[:1], ranks=(1,)) for answer in now.answers)
    before = replace(now, answers=earlier)
    tree = read(page(now, compare(now, make_baseline(before))))
    sections = ("#worst", "#comparison", "#unmeasured", "#questions", "#confusion", "#tags")
    for part in ("head > title", "h1", *sections):
        assert "<script>alert(1)</script>" in said(tree, part), part
    links = {link.attributes["href"] or "" for link in nodes(tree, "a")}
    assert "https://example.org/page#part" in links
    assert all(link.startswith(("#", "https://example.org/")) for link in links)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_odd_runs(run: Run, count: int) -> None:
    bare = QueryResult("k", "", (), "nothing", (), (), (), (), None, {}, 0.0, nothing=True)
    for answers in (run.answers[:count], (bare,) * count, run.answers[-count:]):
        odd = replace(run, answers=answers, fingerprint=None, measures=run.measures[: count + 1])
        tree = read(page(odd, None, None))
        assert "another pipeline made the collection" in said(tree, "header")
    read(page(replace(run, answers=(replace(run.answers[0], ms=1e7), replace(run.answers[0], ms=0.0)))))


def test_from_the_command_line(house: Path, tmp_path: Path) -> None:
    suite, report = suite_file(tmp_path, QUESTIONS), tmp_path / "report.html"
    arguments = ("validate", "--suite", str(suite), "--collection", "house", "--gate", "Hit@5>=0.5", "--json")
    done = recto(house / "home", *arguments, "--html", str(report))
    assert done.returncode == 0, done.stderr
    tree = read(report.read_text("utf-8"))
    for name, score in json.loads(done.stdout)["scores"].items():
        assert f"{name}: mean {score['mean']:.3f}" in said(tree, "#measures")
    assert "not measured" not in said(tree, "header"), "the index's own noise level is told"
    failed = recto(house / "home", *arguments, "--html", str(tmp_path / "no" / "report.html"))
    assert failed.returncode != 0
    assert "cannot be written" in failed.stderr


def test_markdown_of_a_comparison(run: Run) -> None:
    now, comparison = compared(run)
    gate = checks(now, (parse_threshold("Hit@5>=0.99"),), comparison)
    text = validation_markdown(now, gate, comparison)
    assert text.startswith("### Retrieval: **failed**\n")
    for check in gate:
        assert f"| {'✅' if check.holds else '❌'} | `{check.name}` | {check.reason} |" in text
    for delta in comparison.deltas:
        assert f"| {delta.measure} | {delta.before:.3f} | {delta.now:.3f} | {delta.delta.mean:+.3f}" in text
    assert "- `how do I keep weeds down`: rank 3 → 1\n" in text
    assert "- `when are beans sown`: rank 1 → none\n" in text
    lost = next(change for change in comparison.changes if change.query == "when are beans sown")
    assert lost.left
    assert all(f"  - gone: `{place}`\n" in text for place in lost.left)
    assert all(f"  - new: `{place}`\n" in text for place in lost.entered)


def test_markdown_without_changes(run: Run) -> None:
    same = compare(run, make_baseline(run))
    assert "\nNo results changed.\n" in validation_markdown(run, checks(run, (), same), same)
    alone = validation_markdown(run, checks(run), None)
    assert "changed" not in alone
    assert f"| MRR | {run.scores()['MRR'].mean:.3f} |" in alone


def test_markdown_of_hostile_text_is_harmless(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    now, comparison = compared(run)
    query = f"`@team` {HOSTILE} {TRICKS} [x](https://example.org) | # *"
    hostile = replace(comparison, changes=tuple(replace(one, query=query) for one in comparison.changes))
    text = validation_markdown(now, checks(now, (), hostile), hostile)
    (line, *_) = (line for line in text.splitlines() if "@team" in line)
    assert line.startswith("- `'@team'")
    assert line.count("`") == 2
    assert not set("\x00\x1b\u202e\ud800\x85") & set(text)
    text.encode("utf-8")
    monkeypatch.setattr(report, "_MAX_CHANGES_TEXT", 400)
    many = replace(comparison, changes=comparison.changes * 100)
    short = validation_markdown(now, checks(now, (), many), many)
    assert len(short) < 3000
    assert " more\n" in short


def link(address: str) -> str:
    return cast(str, environment().get_template("macros.html").make_module().link(address))  # type: ignore[attr-defined]


@given(st.text())
def test_any_text_stays_text(text: str) -> None:
    page = environment().from_string('<p title="{{ text }}">{{ text }}</p>').render(text=text)
    tree = LexborHTMLParser(f"<!DOCTYPE html><body>{page.encode('utf-8', 'replace').decode()}</body>")
    assert [node.tag for node in tree.css("body *")] == ["p"]
    (found,) = tree.css("p")
    assert set(found.attributes) == {"title"}


@pytest.mark.parametrize(
    "address",
    ["https://example.org/a?b=1&c=2#d", "http://localhost:3000/x", 'https://example.org/"><script>'],
)
def test_web_addresses_are_links(address: str) -> None:
    (found,) = LexborHTMLParser(link(address)).css("a")
    assert found.attributes == {"href": address, "rel": "noopener noreferrer"}
    assert found.text() == address


@pytest.mark.parametrize(
    "address",
    ["javascript:alert(1)", "java\x00script:alert(1)", "data:text/html,x", "local://docs/docs/a", "//example.org",
     "https:", "https://[", "a/b"],
)  # fmt: skip
def test_other_addresses_are_text(address: str) -> None:
    assert "href" not in link(address)
