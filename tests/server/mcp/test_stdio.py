"""Test reading single messages on standard input."""

from __future__ import annotations

import json

import pytest

from recto.server.mcp.server import replace_lone_surrogates


@pytest.mark.parametrize(
    ("sent", "read"),
    [
        (r"cut \ud83e", "cut \ufffd"),
        (r"\uDD16 cut", "\ufffd cut"),
        (r"\ud83e\ud83e\udd16", "\ufffd\U0001f916"),
        (r"\ud83e\u0041", "\ufffdA"),
        (r"whole \ud83e\uDD16", "whole \U0001f916"),
        (r"a path C:\\ud83e", r"a path C:\ud83e"),
        (r"\\\ud83e", "\\\ufffd"),
        (r"\n\u00e9 plain", "\n\u00e9 plain"),
    ],
)
def test_lone_surrogates_are_replaced(sent: str, read: str) -> None:
    assert json.loads(replace_lone_surrogates(f'"{sent}"')) == read
