"""Compare embedding models by readers' questions: `uv run --group bench python -m bench.models`.

Each model indexes the books of the question sets, and all questions run in dense and in hybrid mode. A model
is EMBEDDER:MODEL: `local` (the built-in model), `local:granite` (its base), `local:DIRECTORY`,
`fastembed:BAAI/bge-small-en-v1.5`, `openai:MODEL` (with the endpoint of the settings) or
`cohere:embed-english-v3.0`. Without `--models`, both built-in models run, and every other embedder that the
settings configure; a service receives the books' text.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any
from urllib.parse import quote

from bench.peers.environments import ROOT
from bench.peers.runners.embedding import Embedding
from bench.peers.runners.recto import Counted
from bench.peers.table import number, table
from bench.question_sets import Answer, AnswerChunk, Book, Result, lead, load_books, measure
from bench.vectors import Vectors
from recto.api import open_embedder
from recto.book.chunking import ChunkSize
from recto.book.sources.tree import open_book
from recto.errors import ConfigurationError, RectoError
from recto.evaluation.measures import ScoreEstimate
from recto.indexing.indexer import IndexJob, index_book
from recto.search.retriever import make_retriever
from recto.settings import (
    BUILT_IN_MODEL,
    BUILT_IN_MODELS,
    COHERE_MODEL,
    GRANITE_MODEL,
    Settings,
    load_settings,
    read_variables,
)
from recto.stores.edge import EdgeStore
from recto.stores.edge.layout import CollectionDirectory, size_on_disk
from recto.types.search import Mode

MODES: tuple[Mode, ...] = ("dense", "hybrid")
MEASURES = ("page hit@1", "page hit@5", "page MRR")
_DEEP = 100  # chunks requested, as in bench.books
_TIMED = 10  # queries of each book that are timed, without the cache: a service may limit their rate


@dataclass(frozen=True, slots=True)
class Figures:
    """What was measured of a model; `embedded` chunks took `seconds`, the others came from the cache."""

    dim: int
    results: dict[str, Result]
    chunks: int
    embedded: int
    seconds: float
    query_ms: float
    bytes_per_chunk: float


class _Timed:
    """An embedder that counts the chunks that it embeds, and their time."""

    def __init__(self, embedder: Any) -> None:
        self._embedder, self.embedded, self.seconds = embedder, 0, 0.0

    def __getattr__(self, name: str) -> Any:
        """Forward everything else to the embedder."""
        return getattr(self._embedder, name)

    def embed_documents(self, texts: Sequence[str]) -> Any:
        start = perf_counter()
        vectors = self._embedder.embed_documents(texts)
        self.seconds += perf_counter() - start
        self.embedded += len(texts)
        return vectors


def configured_models(variables: Mapping[str, str]) -> list[str]:
    """Return the built-in models, and the model of every other embedder whose settings are present."""
    has_key, model = "COHERE_API_KEY" in variables, variables.get("RECTO_MODEL", "")
    guess = "openai" if "RECTO_OPENAI_URL" in variables else "cohere" if has_key else "local"
    embedder = variables.get("RECTO_EMBEDDER", guess)  # RECTO_MODEL is a model of this embedder
    names = ["local", f"local:{GRANITE_MODEL}"]
    if embedder.lower() != "local" or model not in ("", *BUILT_IN_MODELS):
        names.append(f"{embedder}:{model}" if model else embedder)
    return [*names, "cohere"] if has_key and embedder.lower() != "cohere" else names


def model_settings(name: str, home: Path, environment: Mapping[str, str]) -> Settings:
    """Return the settings of a user who has chosen this model; the rest comes from the environment."""
    embedder, _, model = name.partition(":")
    if embedder == "fastembed":  # the local embedder opens its models
        if not model:
            raise ConfigurationError(
                "fastembed needs a model", hint="Such as fastembed:BAAI/bge-base-en-v1.5"
            )
        embedder = "local"
    elif embedder == "local":
        model = model or BUILT_IN_MODEL  # explicitly: a RECTO_MODEL in .env is for another embedder
    elif embedder == "cohere":
        model = model or COHERE_MODEL
    chosen = {"RECTO_EMBEDDER": embedder, "RECTO_STORE": "edge", "RECTO_HOME": str(home)}
    return load_settings({**environment, **chosen, **({"RECTO_MODEL": model} if model else {})})


def run_model(name: str, books: Sequence[Book], home: Path, cache: Path) -> Figures:
    """Index all books with a model and run their questions."""
    settings = model_settings(name, home, os.environ)
    folder = home / "models" / quote(name, safe="")
    answers: dict[str, dict[str, list[Answer]]] = {mode: {} for mode in MODES}
    times: list[float] = []
    chunks = size = 0
    with closing(open_embedder(settings, _notify)) as embedder, closing(EdgeStore(folder)) as store:
        embedder.warm_up()
        timed: Any = _Timed(embedder)
        with Vectors(timed, cache) as vectors:
            embedding = Embedding(
                lambda texts: vectors.documents(texts, f"{name}: chunks").tolist(),
                lambda text: vectors.questions([text], name).tolist()[0],
                embedder=embedder,
            )
            cached: Any = Counted(embedding)
            for book in books:
                _notify(f"{name}: {book.name}, {len(book.questions)} queries")
                job = IndexJob(open_book(book.docs, book=book.name), cached, ChunkSize(settings.chunk_tokens))
                info = index_book(job, store, book.name, journal=folder / "journal").info
                files = CollectionDirectory(folder / "collections" / book.name).generation(info.generation)
                size += sum(size_on_disk(path.stat()) for path in files.rglob("*") if path.is_file())
                chunks += info.chunks
                queries = [question.query for question in book.questions]
                vectors.questions(queries, f"{name}: queries")  # into the cache, in few calls
                retriever = make_retriever(settings, cached, store, book.name)
                for mode in MODES:
                    found = (retriever.search(query, top_k=_DEEP, mode=mode).hits for query in queries)
                    answers[mode][book.name] = [
                        Answer(tuple(AnswerChunk(hit.chunk.source) for hit in hits)) for hits in found
                    ]
                retriever = make_retriever(settings, embedder, store, book.name)
                retriever.search(queries[0])  # opens the index
                for query in queries[:_TIMED]:
                    start = perf_counter()
                    retriever.search(query)
                    times.append(1000 * (perf_counter() - start))
        results = {mode: measure(books, found) for mode, found in answers.items()}
        return Figures(
            embedder.dim, results, chunks, timed.embedded, timed.seconds, median(times), size / chunks
        )


def markdown(figures: Mapping[str, Figures | str]) -> str:
    """Return the table; a model that could not be run has a row with the reason."""
    first = next((name for name, outcome in figures.items() if isinstance(outcome, Figures)), "")
    heads = ["model", "dimension", *(f"{mode} {each}" for mode in MODES for each in MEASURES)]
    heads += [f"hybrid page MRR minus {first or 'the first model'} (95 % interval)"]
    heads += ["chunks/s", "ms per query", "bytes per chunk"]
    rows = []
    for name, outcome in figures.items():
        if isinstance(outcome, str):
            rows.append([name, f"– ({outcome})", *[""] * (len(heads) - 2)])
            continue
        means = [f"{outcome.results[mode].mean()[each]:.3f}" for mode in MODES for each in MEASURES]
        gap = _lead(outcome, figures[first])
        shown = "–" if name == first else f"{gap.mean:+.3f} ({gap.low:+.3f} to {gap.high:+.3f})"
        speed = number(outcome.embedded / outcome.seconds) if outcome.embedded else "– (cached)"
        costs = [speed, number(outcome.query_ms), number(outcome.bytes_per_chunk)]
        rows.append([name, str(outcome.dim), *means, shown, *costs])
    # The cells are not cut: a reason must be complete.
    return table(heads, [[" ".join(cell.split()).replace("|", "/") for cell in row] for row in rows])


def to_dict(figures: Mapping[str, Figures | str]) -> dict[str, Any]:
    """Return plain JSON values, with the ranks of every query."""
    first = next((made for made in figures.values() if isinstance(made, Figures)), "")
    return {
        name: {"failed": made}
        if isinstance(made, str)
        else {
            **asdict(made),
            "means": {mode: result.mean() for mode, result in made.results.items()},
            "lead": _lead(made, first).to_dict(),
        }
        for name, made in figures.items()
    }


def _lead(mine: Figures, first: Figures | str) -> ScoreEstimate:
    assert isinstance(first, Figures)
    return lead(mine.results["hybrid"], first.results["hybrid"])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the models one after another and print the table."""
    options = parse(arguments)
    books = load_books(options.questions, options.books, [name for name in options.sets.split(",") if name])
    names = list(dict.fromkeys(options.models or configured_models(read_variables())))
    figures: dict[str, Figures | str] = {}
    with tempfile.TemporaryDirectory(prefix="recto-models-") as scratch:
        for name in names:
            try:
                figures[name] = run_model(name, books, options.home or Path(scratch), options.cache)
            except RectoError as error:
                figures[name] = str(error)
                _notify(f"{name} failed: {error} {error.hint}")
            except Exception as error:  # noqa: BLE001 - whatever a model's package raises, the others go on
                figures[name] = f"{type(error).__name__}: {error}"
                _notify(f"{name} failed: {figures[name]}")
    print(markdown(figures))
    if options.json:
        options.json.write_text(json.dumps(to_dict(figures), indent=1) + "\n", "utf-8")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    corpora = Path(os.environ.get("RECTO_CORPORA") or ROOT.parent / "shared" / "corpora")
    home = Path(os.environ.get("RECTO_HOME", "~/.recto")).expanduser()
    parser = argparse.ArgumentParser(
        prog="python -m bench.models",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--models", nargs="+", metavar="NAME", help="EMBEDDER:MODEL (default: see above)")
    add("--sets", default="", help="some of the sets, separated by commas")
    add("--questions", type=Path, default=corpora / "questions", help="folder of the sets")
    add("--books", type=Path, default=corpora / "books", help="folder of the books")
    add("--home", type=Path, help="folder that keeps the indexes (default: a temporary one)")
    add("--cache", type=Path, default=home / "bench", help="folder that keeps vectors")
    add("--json", type=Path, metavar="FILE", help="write all figures and ranks to this file")
    return parser.parse_args(arguments)


def _notify(text: str) -> None:
    print(text.strip(), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
