"""The comparison of a book with its built site: a tiny book, and a site written by hand that differs in known places."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench import fidelity
from tests.book.files import write

BOOK = {
    "mkdocs.yml": "site_name: Lights\nnav:\n- index.md\n- lamp.md\n- gone.md\n",
    "docs/index.md": "# Lights\n\nA *lamp* shines. ![](a.png)\n\n## Switch\n\n```python title='b'\nturn_on()\n```\n",
    "docs/lamp.md": "# Lamp\n\nOne two three lost words.\n\n## Bulb\n\nIt is warm.\n",
    "docs/gone.md": "# Gone\n\nText.\n",
}
FRAME = (
    "<html><head><title>{title} - Lights</title></head><body><nav><a href='{up}.'>Lights</a> <a href='{up}lamp/'>"
    "Lamp</a></nav><main><h1 id='{id}'>{title}<a class='headerlink'>#</a></h1>{text}</main><footer>Foot</footer></body>"
)
BUILT = {
    "index.html": FRAME.format(
        title="Lights",
        id="lights",
        up="",
        text="<p>A <em>la</em>mp shines. <img alt='bright' src='a.png'></p><h2 id='switch'>Switch</h2><div class='linenos'>1"
        "</div><pre><span>turn</span>_on()</pre><button>Copy</button><span class='sr-only'>Hidden</span>",
    ),
    "lamp/index.html": FRAME.format(
        title="Table lamp",
        id="lamp",
        up="../",
        text="<p>One two three</p><h2 id='bulbs'>Bulb</h2><p>It is warm.</p>",
    ),
    "other/index.html": FRAME.format(title="Other", id="", up="../", text=""),
    "search/index.html": "<html>",
    "old/index.html": "<meta http-equiv='refresh' content='0; url=..'>",
}


def test_a_book_is_compared_with_its_built_site(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    book, built = write(tmp_path / "book", BOOK), write(tmp_path / "built", BUILT)
    monkeypatch.setattr(sys, "argv", ["bench", str(book), str(built), "--json"])
    fidelity.main()
    figures = json.loads(capsys.readouterr().out)
    differences = figures.pop("differences")
    assert figures == {
        "pages": "2",
        "only source": "1",
        "only built": "1",
        "titles": "0.5000",
        "anchors": "0.7500",
        "headings": "0.5000",
        "order": "1.0000",
        "built words": "0.9375",
        "source words": "0.8824",
        "pages ≥ .99": "0.5000",
    }
    assert "only source: gone.md: https://book.example.org/gone/" in differences
    assert "only built: other/index.html" in differences
    assert "anchors: lamp.md#bulb" in differences
    assert "  after 'one two three':  | lost words" in differences
    monkeypatch.setattr(sys, "argv", ["bench", str(book), str(built)])
    fidelity.main()
    assert capsys.readouterr().out.count("| 0.9375 |") == 1
