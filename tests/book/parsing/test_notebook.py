"""Jupyter notebooks: cells, outputs, languages, anchors, and the lines of the file."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recto.book.parsing import read
from tests.book.parsing.builders import page_of


def notebook(*cells: dict[str, Any], language: str = "python") -> str:
    metadata = {"kernelspec": {"language": language}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4}, indent=1, ensure_ascii=False)


def markdown(*lines: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": [f"{line}\n" for line in lines]}


def code(source: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": source.splitlines(keepends=True), "outputs": list(outputs)}


def texts(written: str) -> list[str]:
    return [block.text for section in read(page_of(written, "ipynb")).sections for block in section.blocks]


def test_cells_become_sections() -> None:
    written = notebook(
        markdown("# Größen", "", "Text."),
        markdown("## Part", "", "See {ref}`x <y>` and $x^2$."),
        code("print('hi')\n", {"output_type": "stream", "name": "stdout", "text": ["hi\n"]}),
        language="julia",
    )
    document = read(page_of(written, "ipynb"))
    assert document.title == "Größen"
    first, second = document.sections
    assert (second.headings, second.anchor) == (("Größen", "Part"), "part")
    shown = ["See x and $x^2$.", "```julia\nprint('hi')\n```", "```text\nhi\n```"]
    assert [block.text for block in second.blocks] == shown
    lines = written.split("\n")
    assert '"Text.' in lines[first.blocks[0].first - 1], "the line of the file"
    assert "print('hi')" in lines[second.blocks[1].first - 1]


def test_outputs_are_text_and_short() -> None:
    table = {"data": {"text/plain": ["   a\n", "0  1"], "text/html": "<table/>", "image/png": "x" * 99}}
    long = {"name": "stdout", "text": "".join(f"line {n}\n" for n in range(500))}
    error = {"output_type": "error", "traceback": ["\x1b[31mboom"], "ename": "E"}
    figure = {"data": {"text/plain": "<Figure size 640x480 with 1 Axes>"}}
    shown = texts(notebook(code("x", table, long, error, figure, {"name": "stderr", "text": "warning"})))
    assert shown[0] == "```python\nx\n```"
    assert shown[1] == "```text\n   a\n0  1\n```"
    assert shown[2].count("\n") == 22
    assert shown[2].endswith("line 19\n…\n```")
    assert len(shown) == 3


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"cells": 1}', "[" * 100_000, '{"worksheets": []}'])
def test_what_is_no_notebook_is_an_error(text: str) -> None:
    with pytest.raises(ValueError):
        read(page_of(text, "ipynb"))


def test_cells_are_anchors_where_there_are_no_headings() -> None:
    sections = read(page_of(notebook(markdown("Hello."), code("x = 1"), markdown("Bye.")), "ipynb")).sections
    assert [section.anchor for section in sections] == ["cell-1", "cell-2", "cell-3"]
    assert [section.anchors[0][1] for section in sections] == ["cell-1", "cell-2", "cell-3"]


def test_cells_of_any_shape_are_read() -> None:
    cells = [None, 1, {}, {"cell_type": "code"}, {"cell_type": "code", "source": 5, "outputs": {"a": 1}}]
    odd = {"cell_type": "code", "source": ["a\r", 1], "outputs": [1, {"data": 3}, {"text": {"a": 1}}]}
    assert texts(json.dumps({"cells": [*cells, odd], "metadata": 7})) == ["```python\na\n```"]


def test_tags_remove_cells_and_parts_of_them() -> None:
    output = {"name": "stdout", "text": "y"}
    tags = ["remove-cell", "remove_input", "remove-output", "hide-input"]
    cells = [{**code(f"x{n}", output), "metadata": {"tags": [tag]}} for n, tag in enumerate(tags)]
    shown = ["```text\ny\n```", "```python\nx2\n```", "```python\nx3\n```", "```text\ny\n```"]
    assert texts(notebook(*cells)) == shown
