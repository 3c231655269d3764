"""The comparison of embedding models: their settings, a whole run on a tiny book, and models that cannot be run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench import models
from recto.settings import GRANITE_MODEL
from tests.doubles.openai import OpenAIDouble


@pytest.fixture
def folders(corpora: Path, shared_home: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The options of a run on a tiny book, in a directory without settings."""
    monkeypatch.chdir(corpora)
    monkeypatch.setenv("RECTO_THREADS", "1")
    (corpora / "home").mkdir()
    (corpora / "home" / "cache").symlink_to(shared_home / "cache")
    return [
        *(f"--{name}={corpora / name}" for name in ("questions", "books", "home")),
        f"--cache={corpora / 'vectors'}",
        f"--json={corpora / 'figures.json'}",
    ]


def rows(printed: str) -> dict[str, list[str]]:
    """Return the cells of each row of the table by its first cell."""
    lines = [line.strip("| ").split(" | ") for line in printed.splitlines() if line.startswith("|")]
    return {cells[0]: cells[1:] for cells in lines}


def test_models_are_compared_and_those_that_fail_say_why(
    folders: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with OpenAIDouble("ollama", "my-model", dim=64) as double:
        monkeypatch.setenv("RECTO_OPENAI_URL", double.base)
        monkeypatch.setenv("RECTO_OPENAI_MAX_TOKENS", "512")
        names = ["cohere", "local", "openai:absent", "openai:my-model"]
        models.main([*folders, "--models", *names])
        documents = sum(any("Knead" in text for text in texts) for texts in double.embedded())
    assert documents == 1, "the double embedded the book, once"
    printed = capsys.readouterr()
    cells = rows(printed.out)
    assert list(cells)[2:] == names, "in the given order, after the heading and the line below it"
    assert "hybrid page MRR minus local (95 % interval)" in cells["model"], "the first that ran"
    assert "COHERE_API_KEY is required but not set" in cells["cohere"][0]
    assert "does not have the model absent" in cells["openai:absent"][0]
    assert "cohere failed: Configuration error: COHERE_API_KEY" in printed.err
    assert "openai:my-model: tiny, 4 queries" in printed.err
    assert (cells["local"][0], cells["local"][7], cells["openai:my-model"][0]) == ("384", "–", "64")
    assert " to " in cells["openai:my-model"][7]
    for name in ("local", "openai:my-model"):
        assert len(cells[name]) == len(cells["model"])
        assert cells[name][4:7] == ["0.667", "1.000", "1.000"], "the question for two pages is no hit at 1"
        assert all(float(cell) > 0 for cell in cells[name][8:]), "speed, time and size"
    figures = json.loads((tmp_path / "figures.json").read_text("utf-8"))
    assert "COHERE_API_KEY" in figures["cohere"]["failed"]
    assert figures["local"]["embedded"] == figures["local"]["chunks"] == 3
    scores = figures["local"]["results"]["hybrid"]["scores"]["tiny"]
    assert [score["all_pages"] for score in scores] == [1, 1, 2]


BOTH = ("local", "local:granite")
OPENAI = {"RECTO_OPENAI_URL": "http://x"}


@pytest.mark.parametrize(
    ("variables", "names"),
    [
        ({"RECTO_MODEL": GRANITE_MODEL, "QDRANT_URL": "http://localhost:6333"}, [*BOTH]),
        ({"RECTO_MODEL": "BAAI/bge-m3"}, [*BOTH, "local:BAAI/bge-m3"]),
        ({"COHERE_API_KEY": "k"}, [*BOTH, "cohere"]),
        ({"COHERE_API_KEY": "k", "RECTO_MODEL": "embed-v4.0"}, [*BOTH, "cohere:embed-v4.0"]),
        ({"COHERE_API_KEY": "k", **OPENAI, "RECTO_MODEL": "m"}, [*BOTH, "openai:m", "cohere"]),
        ({"RECTO_EMBEDDER": "Local", **OPENAI}, [*BOTH]),
        ({"RECTO_EMBEDDER": "demo"}, [*BOTH, "demo"]),
    ],
)
def test_the_configured_models_run_by_default(variables: dict[str, str], names: list[str]) -> None:
    assert models.configured_models(variables) == names
