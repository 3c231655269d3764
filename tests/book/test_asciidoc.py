"""Books in AsciiDoc: included files, conditionals, Antora and books of one file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from recto.book.parsing import read
from recto.book.sources.options import SiteOptions
from recto.book.sources.tree import open_book
from recto.protocols import Source
from tests.book.files import write

URL = "https://example.org/lights/"
ANTORA = {
    "antora-playbook.yml": "site:\n  title: Lights\n  url: https://example.org/lights\n"
    "asciidoc:\n  attributes:\n    oil: whale@\n    idprefix: ''\n    idseparator: '-'\n",
    "docs/antora.yml": "name: tower\nversion: '2.0'\ntitle: The Tower\nnav:\n- modules/ROOT/nav.adoc\n"
    "asciidoc:\n  attributes:\n    oil: colza\n    tall: '{oil} tall'\n",
    "docs/modules/ROOT/nav.adoc": ".Up\n* xref:stairs.adoc[]\n** xref:lamp:wick.adoc[The wick]\n* xref:index.adoc[Start]\n",
    "docs/modules/ROOT/pages/index.adoc": "= Welcome\n\nxref:stairs.adoc[] and xref:lamp:wick.adoc#trim[trim it].\n",
    "docs/modules/ROOT/pages/stairs.adoc": "= The {tall} Stairs\n\n== Step by step\n\n"
    "include::partial$steps.adoc[tags=up;!secret]\n\n----\ninclude::lamp:example$/x.py[lines=2..-1]\n----\n",
    "docs/modules/ROOT/pages/_hidden.adoc": "= Hidden\n\nNo.\n",
    "docs/modules/ROOT/partials/steps.adoc": "// tag::up[]\nUp.\n// tag::secret[]\nNo.\n// end::secret[]\n"
    "ifdef::env-site[On the web.]\n// end::up[]\nNo.\n",
    "docs/modules/lamp/pages/wick.adoc": "= Wick\n\nTrim {page-component-version}.\n",
    "docs/modules/lamp/examples/x.py": "# no\nlight()\n",
}
BOOK = {
    "book.adoc": "= Lights\n:doctype: book\n:oil: colza\n\ninclude::attributes.adoc[]\n\ninclude::one.adoc[]\n\n"
    "include::two.adoc[leveloffset=+1]\n",
    "attributes.adoc": ":wick: cotton\n",
    "one.adoc": "[#one]\n== One\n\nSee <<_summary_2>>.\n\n=== Summary\n\n{oil}\n\n.F\nimage::a.png[]\n",
    "two.adoc": "= Two\n\ninclude::sections/more.adoc[]\n\n== Summary\n\n{wick}, <<one>>\n\n.G\nimage::b.png[]\n",
    "sections/more.adoc": "== More\n\nMore.\n\ninclude::../one.txt[]\n",
    "other.adoc": "= Other\n\nNot in the book.\n",
}


def texts(book: Source) -> dict[str, str]:
    """Return the text of each page."""
    documents = {page.path: read(page) for page in book.pages()}
    return {
        path: "\n".join(block.text for section in document.sections for block in section.blocks)
        for path, document in documents.items()
    }


def anchors(book: Source) -> dict[str, list[str]]:
    """Return the anchors of the sections of each page."""
    return {page.path: [section.anchor for section in read(page).sections] for page in book.pages()}


@pytest.mark.parametrize(("stated", "first"), [("", "index"), ("start_page: lamp:wick.adoc\n", "wick")])
def test_start_page_is_before_the_navigation_that_does_not_list_it(
    tmp_path: Path, stated: str, first: str
) -> None:
    navigation = {"docs/modules/ROOT/nav.adoc": "* xref:stairs.adoc[]\n"}
    component = {"docs/antora.yml": ANTORA["docs/antora.yml"] + stated}
    book = open_book(write(tmp_path, {**ANTORA, **navigation, **component}))
    files = [page.path.rpartition("/")[2] for page in book.pages()]
    assert files[:2] == [f"{first}.adoc", "stairs.adoc"]


def test_antora(tmp_path: Path) -> None:
    book = open_book(write(tmp_path, ANTORA))
    pages = list(book.pages())
    assert book.info.title == "Lights"
    assert [(page.url.removeprefix(URL), read(page).title, page.module) for page in pages] == [
        ("tower/2.0/stairs.html", "The colza tall Stairs", "up"),
        ("tower/2.0/lamp/wick.html", "Wick", "lamp"),
        ("tower/2.0/index.html", "Welcome", "up"),
    ]
    assert list(texts(book).values()) == [
        "Up.\nOn the web.\n```\nlight()\n```",
        "Trim 2.0.",
        "The colza tall Stairs and trim it.",
    ]
    assert anchors(book)["docs/modules/ROOT/pages/stairs.adoc"] == ["step-by-step"]


@pytest.mark.parametrize(
    ("urls", "version", "address"),
    [
        ("", "~", "tower/lamp/wick.html"),
        ("urls: {html_extension_style: indexify}", "'1'", "tower/1/lamp/wick/"),
        ("urls: {html_extension_style: drop}", "'1'", "tower/1/lamp/wick"),
        ("urls: {latest_version_segment: latest}", "'1'", "tower/latest/lamp/wick.html"),
    ],
)
def test_antoras_addresses(tmp_path: Path, urls: str, version: str, address: str) -> None:
    playbook = f"{ANTORA['antora-playbook.yml']}{urls}\n"
    component = f"name: tower\nversion: {version}\n"
    book = open_book(
        write(tmp_path, {**ANTORA, "antora-playbook.yml": playbook, "docs/antora.yml": component})
    )
    assert f"{URL}{address}" in [page.url for page in book.pages()]


def test_a_book_of_one_file(tmp_path: Path) -> None:
    book = open_book(write(tmp_path, BOOK), SiteOptions(url=URL))
    assert book.info.title == "Lights"
    assert [page.url.removeprefix(URL) for page in book.pages()] == ["book.html?one", "book.html?two"]
    assert anchors(book) == {"one.adoc": ["one", "_summary"], "two.adoc": ["_more", "_summary_2"]}
    assert texts(book) == {
        "one.adoc": "See Summary.\ncolza\n**Figure 1. F**",
        "two.adoc": "More.\ncotton, One\n**Figure 2. G**",
    }
    assert book.notes[-1] == "1 included file could not be resolved: two.adoc: ../one.txt (missing)."


def test_a_plain_directory(tmp_path: Path) -> None:
    files = {
        "a.adoc": "= A\n\ninclude::b.txt[]\n\n\\include::c.txt[]\n",
        "b.txt": "B.\n",
        "c.asc": "= C\n\nText.\n",
    }
    book = open_book(write(tmp_path, files))
    assert texts(book) == {"a.adoc": "B.\ninclude::c.txt[]", "c.asc": "Text."}


@pytest.mark.parametrize(
    ("condition", "holds"),
    [
        ("ifdef::a[]", True),
        ("ifndef::a[]", False),
        ("ifdef::a,x[]", True),
        ("ifdef::a+x[]", False),
        ('ifeval::["{a}" == "1"]', True),
        ("ifeval::[{a} > 1]", False),
        ("ifeval::[nonsense]", False),
    ],
)
def test_conditionals(tmp_path: Path, condition: str, holds: bool) -> None:
    text = f"= T\n:a: 1\n\n{condition}\nYes.\nifdef::x[]\nNo.\nendif::[]\nendif::[]\n\nEnd.\n"
    page = texts(open_book(write(tmp_path, {"a.adoc": text})))["a.adoc"]
    assert page == ("Yes.\nEnd." if holds else "End.")


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("tag=a", "1\n2\n3"),
        ("tags=**", "0\n1\n2\n3\n4"),
        ("tags=*", "1\n2\n3"),
        ("tags=!b", "0\n1\n3\n4"),
        ("tags=**;!b", "0\n1\n3\n4"),
        ("tags=b", "2"),
        ('lines="1;4..5"', "0\n2"),
        ("tag=c", ""),
    ],
)
def test_parts_of_included_files(tmp_path: Path, options: str, text: str) -> None:
    part = "0\n# tag::a[]\n1\n# tag::b[]\n2\n# end::b[]\n3\n# end::a[]\n4\n"
    files = {"a.adoc": f"= T\n\n....\ninclude::b.py[{options}]\n....\n\nEnd.\n", "b.py": part}
    page = texts(open_book(write(tmp_path, files)))["a.adoc"]
    kept = page.removesuffix("End.").replace("```", "").strip()
    assert "\n".join(line for line in kept.split("\n") if not line.startswith("#")) == text


@pytest.mark.parametrize(
    "target",
    [
        "../secret.adoc",
        "link.adoc",
        "{secret}",
        "/etc/hostname",
        "https://x.org/a.adoc",
        "a.adoc",
        "loop.adoc",
    ],
)
@pytest.mark.parametrize("kind", ["plain", "book", "antora"])
def test_refused_includes(tmp_path: Path, target: str, kind: str) -> None:
    write(tmp_path, {"secret.adoc": "hunter2"})
    page = f"= A\n:secret: {tmp_path}/secret.adoc\n\nText.\n\ninclude::{target}[]\n"
    above = "docs/modules/ROOT/pages/" if kind == "antora" else ""
    files = {"plain": {}, "book": BOOK, "antora": ANTORA}[kind]
    if kind == "book":
        files = {**files, "book.adoc": f"{BOOK['book.adoc']}\ninclude::a.adoc[]\n"}
    root = write(
        tmp_path / "book",
        {**files, f"{above}a.adoc": page, f"{above}loop.adoc": "L\n\ninclude::loop.adoc[]\n"},
    )
    os.symlink(tmp_path / "secret.adoc", root / above / "link.adoc")
    book = open_book(root)
    assert "hunter2" not in str(texts(book))
    notes = str(book.notes)
    assert "could not be resolved" in notes
    assert any(reason in notes for reason in ("outside", "missing", "on the web", "it includes itself"))
