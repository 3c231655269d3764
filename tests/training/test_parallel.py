"""Parallel text is collected from translated repositories; those that measure the model are not among them."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest

from tests.training.test_questions import FORBIDDEN
from training import parallel

PO = """
msgid ""
msgstr "Language: de"

#: a.rst:1
msgid "Open the `settings`_ of "
"the **editor**."
msgstr "Öffne die `Einstellungen`_ des **Editors**."

#, fuzzy
msgid "A text that is not certain"
msgstr "Ein Text, der nicht sicher ist"

msgid "Hyperlink"
msgstr "Hyperlink"
"""
PAGE = "---\ntitle: x\n---\n# {0}\n\n{1}\n\n```py\nprint(1)\n\nprint(2)\n```\n\n- {2}\n- {3}\n\n## {0}\n\n{1}\n{4}"
FILES = {
    "po/de.po": PO,
    "docs/en/a.md": PAGE.format(
        "Sharing files", "Share a file with others.", "First step", "Second step", ""
    ),
    "docs/fa/a.md": PAGE.format(
        "اشتراک فایل", "یک فایل را با دیگران به اشتراک بگذارید.", "گام اول", "گام دوم", ""
    ),
    "docs/es/a.md": PAGE.format(
        "Compartir", "Comparte un archivo.", "Paso uno", "Paso dos", "\nUn bloque más."
    ),
    "i18n/en.json": json.dumps({"menu": {"save": "Save the page", "gone": "Not translated"}}),
    "i18n/ur.json": json.dumps({"menu": {"save": "صفحہ محفوظ کریں"}}),
    "config/en.yml": "en:\n  a:\n    b: Log in again\n",
    "config/pt-BR.yml": "pt-BR:\n  a:\n    b: Entre de novo\n",
    "res/values/strings.xml": '<resources><string name="a">Don\\\'t show <b>this</b></string></resources>',
    "res/values-in/strings.xml": '<resources><string name="a">Jangan tampilkan</string></resources>',
    "ftl/en.ftl": "title =\n    .label = Close the window\n",
    "ftl/ko.ftl": "title =\n    .label = 창을 닫기\n",
    "l10n/hi.json": json.dumps({"translations": {"Delete %s now": "%s अभी हटाएँ"}}),
}
SOURCES = [
    ("po", ["po/{lang}.po"], ""),
    ("pages", ["docs/{lang}/{path}.md"], "docs/en/{path}.md"),
    ("strings", ["i18n/{lang}.json"], "i18n/en.json"),
    ("strings", ["config/{lang}.yml"], "config/en.yml"),
    ("strings", ["{path}/values-{lang}/strings.xml"], "{path}/values/strings.xml"),
    ("strings", ["ftl/{lang}.ftl"], "ftl/en.ftl"),
    ("keys", ["l10n/{lang}.json"], ""),
]


def test_pairs_of_all_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = tmp_path / "work"
    for path, text in FILES.items():
        (work / path).parent.mkdir(parents=True, exist_ok=True)
        (work / path).write_text(text, "utf-8")
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "a"]):
        subprocess.run([*git, *command], cwd=work, check=True)
    (tmp_path / "mirrors" / "a+b").mkdir(parents=True)
    (work / ".git").rename(tmp_path / "mirrors" / "a+b" / "repo")
    sources = [
        parallel.Source("a/b", "HEAD", "MIT", kind, tuple(paths), english) for kind, paths, english in SOURCES
    ]
    monkeypatch.setattr(
        parallel, "load_sources", lambda: [*sources, parallel.Source("a/none", "", "", "po", ())]
    )
    parallel.main([str(tmp_path / "mirrors"), str(tmp_path / "out")])
    found = {
        path.name.partition(".")[0]: [
            json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()
        ]
        for path in (tmp_path / "out").iterdir()
    }
    shared = [
        ["Sharing files", "اشتراک فایل"],
        ["Share a file with others.", "یک فایل را با دیگران به اشتراک بگذارید."],
        ["First step", "گام اول"],
        ["Second step", "گام دوم"],
    ]
    assert found == {
        "de": [["Open the settings of the editor.", "Öffne die Einstellungen des Editors."]],
        "fa": shared,
        "es": [
            ["Sharing files", "Compartir"],
            ["Share a file with others.", "Comparte un archivo."],
            ["First step", "Paso uno"],
            ["Second step", "Paso dos"],
        ],
        "ur": [["Save the page", "صفحہ محفوظ کریں"]],
        "pt": [["Log in again", "Entre de novo"]],
        "id": [["Don't show this", "Jangan tampilkan"]],
        "ko": [["Close the window", "창을 닫기"]],
        "hi": [["Delete now", "अभी हटाएँ"]],
    }


def test_the_list_is_complete_and_keeps_back_what_measures() -> None:
    sources = parallel.load_sources()
    repositories = {source.repository for source in sources} | {
        source.english_repository for source in sources
    }
    assert not repositories & FORBIDDEN
    assert not [name for name in repositories if name.startswith(("vuejs", "fastapi", "tiangolo"))]
    for source in sources:
        assert len(source.commit) == 40
        assert source.licence
        assert source.kind in ("po", "pages", "strings", "keys")
        assert (source.kind in ("pages", "strings")) == bool(source.english)
        assert all("{lang}" in path or source.language for path in source.translated)
