"""Check that no regular expression takes more than linear time, whatever the text is."""

from __future__ import annotations

import re
from fnmatch import translate
from pathlib import Path

import pytest

from tests.patterns import UnknownPatternError, Use, slow_input, uses
from tests.running import ROOT
from tests.test_layers import module_name

SOURCE = ROOT / "src"
PATHS = {module_name(path, SOURCE): path for path in sorted((SOURCE / "recto").rglob("*.py"))}
BUILT = {
    "recto._util.languages:detect_language": ["[a-zà-ÿ]"],
    "recto.book.chunking:_after": [r"\n[ \t]*\n", "\n", r"\s+|[、，；،؛]"],
    "recto.book.parsing.asciidoc:_heading": [r" ==$"],
    "recto.book.parsing.asciidoc.tables:_cells": [r"(?<!\\)\|"],
    "recto.book.parsing.asciidoc.text:_constrained": [
        r"(?<![\w;:}\\])(?:\[(?P<role>[^\[\]\n]{0,200})\])?_(?=[^\s_])"
        r"(?P<text>(?:[^_]++|(?<=\w)_(?=\w))++)(?<!\s)_(?![\w])",
        r"(?<![\w;:\"'`}\\])(?:\[(?P<role>[^\[\]\n]{0,200})\])?`(?=[^\s`])"
        r"(?P<text>(?:[^`]++|(?<=\w)`(?=\w))++)(?<!\s)`(?![\w\"'`])",
    ],
    "recto.book.parsing.asciidoc.text:_unconstrained": [
        r"(?<!\\)(?:\[(?P<role>[^\[\]\n]{0,200})\])?__(?P<text>[^_]++(?:_(?!_)[^_]++)*+)__"
    ],
    "recto.book.parsing.asciidoc.text:without_tags": [r"(?s)<style\b.*?(?:</style>|\Z)"],
    "recto.book.parsing.asciidoc.text:title_id": [
        r"(?<=\w)--(?=\w)|(?:^| )--(?: |$)|\.\.\.",
        r"[^\w .-]",
        r"[ .\-_]+",
    ],
    "recto.book.parsing.html.tokens:_tag": [r"</script(?=[\s/>])"],
    "recto.book.sources.directory:_compiled": ["\\A" + translate("*a*[!b]?c*")],
    "recto.book.sources.directory:recognises": [
        r"(?m)^(?:extensions|html_theme|master_doc|root_doc|source_suffix)\s*=",
        r"(?s)\A(?=.*\[project\])(?=.*\[build\])",
    ],
    "recto.book.sources.mkdocs:": [
        r"(?<![;-])-{1,40}8<-+[ \t]+\[[ \t]*(?:start)[ \t]*:[ \t]*(?P<name>[A-Za-z][\w-]*)[ \t]*\]"
    ],
    "recto.book.sources.mkdocs:_between": [r"\bend=(?:\"((?:\\.|[^\"\\])*)\"|'((?:\\.|[^'\\])*)')"],
    "recto.book.sources.mkdocstrings:_rules": ["^_[^_]a"],
    "recto.book.sources.literal_includes:_python_object": [
        r"(?m)^([ \t]*)(?:async[ \t]+def|def|class)[ \t]+a\b.*\n?",
        r"(?m)^(?![ \t]{5}|[ \t]*$|[ \t]*[)\]}])",
    ],
    "recto.book.sources.signatures:typed_fields": [
        r"(?m)^:(?:param|parameter|arg|argument|key|keyword)(?:[^:\n]*[ *\\])?a:",
        r"(?m)^:(?:type a|param[^:\n]+ a):",
        r"(?m)^:rtype:",
    ],
    "recto.book.sources.vite:_rewrite": [r"(?i)\A/a(?P<b>[^/]+(?:/[^/]+)*)c(?:/d(?P<e>[^/]+)f)?"],
    "recto.embedders.model_cards:model_card": ["gte-(?:\\w+-en-v1\\.5|modernbert|multilingual)"],
    "recto.search.markdown:__getattr__": ["a"],
    "recto.search.pages:_has_heading": [r"(?m)^#{1,6} a$"],
}
"""Samples of the patterns that are built from local values, by the place that compiles them."""


@pytest.mark.slow
@pytest.mark.parametrize("module", [name for name, path in PATHS.items() if "re." in path.read_text("utf-8")])
def test_no_pattern_of_a_module_is_slower_than_linear(module: str) -> None:
    slow = [slow_input(use) for use in uses(module, PATHS, BUILT)]
    assert not any(slow), "\n".join(filter(None, slow))


@pytest.mark.parametrize(
    ("pattern", "scans"),
    [
        (r"[ \t]+x", True),
        (r"\[[^\]]*\]\(", True),
        (r"::: ?\w+[ \t]*(?:[ \t]+[^{]*)?\{a\}", False),
        (r"`([A-Za-z]\w*(?:[._]\w+)+)`", False),
        (r"a(\w+\s?)*:", False),
        (r"(?:.*,)(?:.*,).*;", False),
    ],
)
def test_a_slow_pattern_is_found(pattern: str, scans: bool) -> None:
    flags = re.MULTILINE
    assert "times as long" in slow_input(Use("here", pattern, flags, scans))


@pytest.mark.parametrize(
    "pattern", [r"(?<!\s)\s++x", r"<[^<>]*>", r"(?<![a-z,])(?:[a-z]++,)*+;", r"a.{0,100}?b"]
)
def test_a_linear_pattern_is_not_reported(pattern: str) -> None:
    assert not slow_input(Use("here", pattern, 0, scans=True))


def test_a_pattern_of_local_values_needs_samples(tmp_path: Path) -> None:
    module = tmp_path / "planted.py"
    module.write_text("import re\nA = re.compile('[ ]+x')\n\ndef f(name):\n    return re.search(name, A)\n")
    with pytest.raises(UnknownPatternError, match="planted:f"):
        list(uses("planted", {"planted": module}, {}))
    (module_constant, local) = uses(
        "planted", {"planted": module}, {"planted:f": ["a"], "planted:A": ["[ ]+x"]}
    )
    assert slow_input(module_constant)
    assert not slow_input(local)


def test_samples_and_other_names_hide_no_pattern(tmp_path: Path) -> None:
    module = tmp_path / "planted.py"
    local = "def f(name):\n    re.sub(name, '', '')\n    return re.search('[ ]+x', name)\n"
    stored = "cached = cache(re.compile)\n\ndef g(text):\n    return cached('[ ]+y').search(text)\n"
    module.write_text(f"import re\nfrom functools import cache\n\n{local}\n{stored}")
    sample, constant, cached = uses("planted", {"planted": module}, {"planted:f": ["a"]})
    assert [use.pattern for use in (sample, constant, cached)] == ["a", "[ ]+x", "[ ]+y"]


@pytest.mark.parametrize(
    "text", ["import re as r", "from re import compile", "import re\nx = map(re.compile, 'ab')"]
)
def test_a_module_that_hides_its_patterns_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "hidden.py").write_text(text)
    with pytest.raises(AssertionError, match="so that this test finds the patterns"):
        list(uses("hidden", {"hidden": tmp_path / "hidden.py"}, {}))


@pytest.mark.slow
def test_every_pattern_is_found_and_every_sample_is_used() -> None:
    places = {use.place for module in PATHS for use in uses(module, PATHS, BUILT)}
    assert set(BUILT) <= places
