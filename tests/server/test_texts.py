"""Test that the widget has all of its texts in each language."""

from __future__ import annotations

import re

import pytest

from tests.running import ROOT

WIDGET = ROOT / "src" / "recto" / "server" / "web" / "widget"
LANGUAGES = sorted(file.stem.removeprefix("strings_") for file in WIDGET.glob("strings_*.js"))


def widget_texts(name: str) -> dict[str, set[str]]:
    """Return the names of the values that are filled in, for each text."""
    code = (WIDGET / name).read_text("utf-8")
    texts = re.findall(r'^  (\w+): "(.*)",$', code, re.MULTILINE)
    return {key: set(re.findall(r"\{\w+\}", text)) for key, text in texts}


@pytest.mark.parametrize("language", LANGUAGES)
def test_all_texts_are_translated_with_their_values(language: str) -> None:
    assert widget_texts(f"strings_{language}.js") == widget_texts("strings.js")


def test_each_language_is_listed() -> None:
    assert len(LANGUAGES) == 8
    code = (WIDGET / "strings.js").read_text("utf-8")
    assert all(f'"{language}"' in code for language in LANGUAGES)
