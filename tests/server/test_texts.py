"""Test that the web UI and the widget have all of their texts in each language."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.running import ROOT

WEB = ROOT / "src" / "recto" / "server" / "web"
LANGUAGES = sorted(file.stem for file in (WEB / "texts").glob("*.js"))
PLURAL = re.compile(r'counted\([^"]*, "([^"]+)"\)')
TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')


def used_texts() -> set[str]:
    """Return the texts that are translated: arguments of `t` and `counted`, and marked elements."""
    used = set(re.findall(r"data-t>([^<]+)<", (WEB / "index.html").read_text("utf-8")))
    used |= set(re.findall(r'aria-label="([^"]+)" data-t-label', (WEB / "index.html").read_text("utf-8")))
    for script in WEB.glob("*.js"):
        code = script.read_text("utf-8") if script.name != "texts.js" else ""
        for call in re.findall(
            r"\bt\((?:[\w.() ]+ (?:=== \w+|\"search\") \? |[\w.()]+ \? )?(\".*?\"(?: : \".*?\")?)[,)]", code
        ):
            used |= set(TEXT.findall(call))
        used |= {text for one in PLURAL.findall(code) for text in (f"1 {one}", f"{{n}} {one}s")}
    return used


def texts_of(file: Path) -> dict[str, str]:
    lines = re.findall(r"^  (\".*\"): (\".*\"),$", file.read_text("utf-8"), re.MULTILINE)
    return {json.loads(text): json.loads(translated) for text, translated in lines}


def values(text: str) -> set[str]:
    """Return the names of the values that are filled in."""
    return set(re.findall(r"\{\w+\}", text))


def widget_texts(name: str) -> dict[str, set[str]]:
    code = (WEB / "widget" / name).read_text("utf-8")
    return {key: values(text) for key, text in re.findall(r'^  (\w+): "(.*)",$', code, re.MULTILINE)}


@pytest.mark.parametrize("language", LANGUAGES)
def test_all_texts_are_translated_with_their_values(language: str) -> None:
    translated = texts_of(WEB / "texts" / f"{language}.js")
    assert len(used_texts()) > 60, "the patterns still match the code"
    assert used_texts() - set(translated) == set()
    assert set(translated) == set(texts_of(WEB / "texts" / "de.js"))
    for english, text in translated.items():
        assert values(text) == values(english), english
    assert widget_texts(f"strings_{language}.js") == widget_texts("strings.js")


def test_languages_are_those_of_the_widget() -> None:
    listed = re.search(r"LANGUAGES = (\[.*?\])", (WEB / "texts.js").read_text("utf-8"))
    assert listed is not None
    assert sorted(json.loads(listed[1])) == LANGUAGES
    files = {file.name for file in (WEB / "widget").glob("strings_*.js")}
    assert files == {f"strings_{one}.js" for one in LANGUAGES}
