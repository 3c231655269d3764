"""reStructuredText: sections, Sphinx's directives and roles, labels, lines; nothing is executed or included."""

from __future__ import annotations

from pathlib import Path

import pytest

from recto.book.parsing import read
from recto.search.markdown import plain_text
from tests.book.parsing.builders import page_of

PAGE = """\
:orphan:

.. _my-label:

Getting started
===============

See :ref:`the label <my-label>`, :class:`~a.b.C`,
:math:`x^2`, ``code`` and |version|.

.. |version| replace:: 3.2

.. toctree::

   other

Part
----

.. code-block:: python
   :linenos:
   :caption: main.py

   print(1)

.. math::
   :label: euler

   e^{i\\pi} = -1

.. py:function:: move(speed)

   Moves.

==== ====
A    B
==== ====
1    x|y
==== ====
"""


def texts(text: str) -> list[str]:
    return [block.text for section in read(page_of(text, "rst")).sections for block in section.blocks]


def test_sections_blocks_anchors_and_lines() -> None:
    document = read(page_of(PAGE, "rst"))
    first, second = document.sections
    assert (document.title, first.headings, first.line) == ("Getting started", ("Getting started",), 5)
    assert first.anchors == ((5, "getting-started"), (5, "my-label"))
    (paragraph,) = first.blocks
    assert paragraph.text == "See the label, `C`,\n$x^2$, `code` and 3.2."
    assert (paragraph.first, paragraph.last) == (8, 9)
    assert (second.headings, second.anchor, second.line) == (("Getting started", "Part"), "part", 17)
    assert [name for _, name in second.anchors] == ["part", "equation-euler", "move"]
    assert [(block.kind, block.text) for block in second.blocks] == [
        ("paragraph", "main.py"),
        ("code", "```python\nprint(1)\n```"),
        ("math", "$$\ne^{i\\pi} = -1\n$$"),
        ("paragraph", "`move(speed)`"),
        ("paragraph", "Moves."),
        ("table", "| A | B |\n| --- | --- |\n| 1 | x\\|y |"),
    ]
    lines = [PAGE.split("\n")[block.first - 1] for block in second.blocks]
    assert lines[2:5] == [".. math::", ".. py:function:: move(speed)", "   Moves."]


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (".. note:: Take care.\n\n   More.", ["**Note**\n\nTake care.\n\nMore."]),
        (".. versionadded:: 3.2\n   It is :ref:`new <x>`.", ["**Added in version 3.2**", "It is new."]),
        (".. unknown-thing:: A title\n   :option: 1\n\n   Content.", ["A title", "Content."]),
        (".. tabs::\n\n   .. tab:: Linux\n\n      apt", ["Linux", "apt"]),
        (".. only:: latex\n\n   Paper.\n\nText.", ["Text."]),
        (".. automodule:: x\n   :members:\n\nText.", ["Text."]),
        (".. image:: a.png\n   :alt: A cat", ["A cat"]),
        ("1. one\n2. two\n\n   - nested", ["1. one\n2. two\n   - nested"]),
        ("term\n  A definition.", ["term\n: A definition."]),
        (">>> 1 + 1\n2", ["```\n>>> 1 + 1\n2\n```"]),
        ("Code::\n\n  x = 1", ["Code:", "```\nx = 1\n```"]),
        (":unknown:role:`shown <hidden>` :pep:`8` :cve:`2020-1` `title`", ["shown PEP 8 CVE 2020-1 title"]),
        (".. figure:: a.png\n   :alt: A cat\n\n   It sleeps.", ["A cat", "It sleeps."]),
        ("``:ref:`!a``` shows ``b``", ["`` :ref:`!a` `` shows `b`"]),
        (".. parsed-literal::\n\n   oil |v|\n\n.. |v| replace:: 3", ["```\noil 3\n```"]),
        (".. cpp:namespace-push:: tower\n\n.. cpp:enum-class:: Colour", ["`enum class Colour`"]),
        (".. cpp:type:: std::vector<int> Lamps", ["`typedef std::vector<int> Lamps`"]),
        (".. cpp:concept:: template<typename T> Lamp", ["`template<typename T> concept Lamp`"]),
        (".. list-table:: Units\n\n   * - A\n   * - 1", ["Units", "| A |\n| --- |\n| 1 |"]),
    ],
)
def test_directives_and_roles_become_their_text(written: str, expected: list[str]) -> None:
    assert texts(written) == expected


def test_nothing_is_included_or_executed(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("hunter2")
    page = "\n\n".join(
        (
            f".. include:: {secret}",
            f".. literalinclude:: {secret}",
            f".. raw:: html\n   :file: {secret}",
            f".. csv-table::\n   :file: {secret}",
            f".. csv-table::\n   :url: file://{secret}",
            f".. figure:: {secret}\n\n   Caption.",
            f".. code-block::\n   :file: {secret}\n\n   x",
            ".. role:: raw-html(raw)\n   :format: html",
            ":raw-html:`<script>` :raw:`<b>`",
            ".. raw:: html\n\n   <script>hunter2</script>",
        )
    )
    assert "hunter2" not in " ".join(texts(page))
    assert "Caption." in texts(page)


def test_many_substitutions_are_refused() -> None:
    bomb = "".join(f".. |{n}| replace:: {f'|{n + 1}|' * 20}\n" for n in range(30))
    bomb += ".. |30| replace:: x\n\n|0|\n\n"
    assert len(" ".join(texts(bomb))) < 100_000
    with pytest.raises(ValueError, match="substitutions"):
        read(page_of(bomb + "|0| " * 5_000, "rst"))
    line = "+---+---+\n"
    table = ".. |a| replace:: b\n\n" + line + f"| a | b |\n{line}" * 1_500
    assert texts(table), "its cells are no substitutions"


def test_a_table_in_a_table_is_read_once() -> None:
    inner = "+-----+-----+\n| A   | B   |\n+-----+-----+"
    cells = "\n".join(f"| {line} | d     |" for line in inner.split("\n"))
    outer = f"+{'-' * 15}+-------+\n{cells}\n+{'-' * 15}+-------+\n"
    (text,) = texts(outer)
    assert text.count("A") == 1


def test_a_page_with_a_very_long_line_is_refused() -> None:
    assert texts("A lamp.\n\n" + "a" * 20_000 + "\n")[0] == "A lamp."
    with pytest.raises(ValueError, match="a line of more than 20000 characters"):
        read(page_of("A lamp.\n\n" + "a" * 20_001 + "\n", "rst"))


def test_anchors_are_those_of_sphinx() -> None:
    text = ".. _lamp:\n\n``Lamp``\n========\n\n.. _elsewhere: https://x.org\n.. currentmodule:: tower\n\n"
    text += ".. class:: Lamp(oil)\n\n   A lamp.\n\n   .. method:: light()\n\n"
    text += ".. data:: hidden\n   :no-index:\n\n.. envvar:: LAMP_OIL\n"
    document = read(page_of(text, "rst"))
    assert document.title == "Lamp"
    anchors = [name for section in document.sections for _, name in section.anchors]
    assert anchors == ["lamp", "id1", "tower.Lamp", "tower.Lamp.light", "envvar-LAMP_OIL"]
    assert "A lamp." in texts(text)


def test_unknown_directives_of_code_are_code() -> None:
    text = ".. click:example::\n\n    @click.command()\n    # A comment\n    def hello():\n        pass\n"
    text += "\n.. shell::\n\n    $ make\n\n.. my-card:: A title\n\n    See :ref:`the text <x>`.\n"
    code = "```\n@click.command()\n# A comment\ndef hello():\n    pass\n```"
    assert texts(text) == [code, "```\n$ make\n```", "A title", "See the text."]


def test_a_title_in_a_directive_is_not_lost() -> None:
    text = "A\n=\n\n.. only:: html\n\n   ==========\n   Use ``oil``\n   ==========\n\n   One.\n\n   Trim it\n   -------\n\n   Two.\n"
    (section,) = read(page_of(text, "rst")).sections
    assert [block.text for block in section.blocks] == ["**Use `oil`**", "One.", "**Trim it**", "Two."]
    assert [anchor for _, anchor in section.anchors] == ["a", "use-oil", "trim-it"]


def test_options_of_doctests_are_not_shown() -> None:
    text = "A\n=\n\n>>> light()  # doctest: +SKIP\non\n<BLANKLINE>\noff\n"
    assert texts(text) == ["```\n>>> light()\non\n\noff\n```"]


def test_a_result_with_a_type_keeps_it() -> None:
    (section,) = read(page_of("A\n=\n\n.. function:: f()\n\n   :return bytes: the oil.\n", "rst")).sections
    assert section.blocks[-1].text == "**Return bytes**\n: the oil."


def test_words_in_angle_brackets_are_no_tags() -> None:
    (section,) = read(
        page_of("A\n=\n\nRun it with <name> or ``<b>``, see <https://x.org>.\n", "rst")
    ).sections
    assert plain_text(section.blocks[0].text) == "Run it with <name> or <b>, see https://x.org."


def test_a_literal_with_roles_has_a_line_for_each_line() -> None:
    text = "A\n=\n\n.. parsed-literal::\n    :ref:`a <a>`: str\n    b: int\n"
    (section,) = read(page_of(text, "rst")).sections
    (block,) = section.blocks
    assert block.text == "```\na: str\nb: int\n```"
    assert len(block.lines) == 4


def test_objects_have_their_words_and_fields() -> None:
    text = ".. py:class:: Lamp(oil)\n   :module: tower\n\n   A lamp.\n\n   :param float oil: Its *oil*,\n"
    text += "      in litres.\n   :raises ValueError: if there is none.\n\n   .. py:method:: Lamp.light(at=None)\n"
    text += "      :async:\n      :module: tower\n\n      :returns: whether it is lit.\n      :rtype: bool\n"
    (section,) = read(page_of(text, "rst")).sections
    assert [block.text for block in section.blocks] == [
        "`class tower.Lamp(oil)`",
        "A lamp.",
        "**Parameters**\n- `oil (float)` – Its *oil*,\n  in litres.\n**Raises**\n- `ValueError` – if there is none.",
        "`async light(at=None)`",
        "**Returns**\n: whether it is lit.\n**Return type**\n: bool",
    ]
    assert [anchor for _, anchor in section.anchors] == ["tower.Lamp", "tower.Lamp.light"]


def test_only_what_sphinx_marks_has_an_anchor() -> None:
    text = ".. _an alias: `A lamp`_\n\nA lamp\n======\n\n.. class:: Lamp\n\n   .. attribute:: oil = 3\n\n"
    text += ".. attribute:: Tower.lamp\n\n   .. class:: Kind\n\n.. program:: None\n\n.. option:: --lit\n"
    (section,) = read(page_of(text, "rst")).sections
    names = [name for _, name in section.anchors]
    assert names == ["a-lamp", "Lamp", "Tower.lamp", "Tower.Kind", "cmdoption-lit"]


def test_options_and_roles_have_the_anchors_of_sphinx() -> None:
    text = ".. program:: lamp\n\n.. option:: -o FILE, --oil FILE\n\n.. rst:directive:: .. lamp:: name\n\n"
    text += "   .. rst:directive:option:: lit\n\n.. py:module:: tower.lamp\n\n.. py:function:: _light()\n"
    (section,) = read(page_of(text, "rst")).sections
    assert sorted(anchor for _, anchor in section.anchors) == [
        "cmdoption-lamp-o", "cmdoption-lamp-oil", "directive-lamp", "directive-option-lamp-lit",
        "module-tower.lamp", "tower.lamp._light",
    ]  # fmt: skip
