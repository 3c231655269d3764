"""Compare `related` with a plain search for the selected text, over hand-written expectations."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from bench.common import new_parser, table
from recto import Chunk, Hit, Retriever, connect
from recto.evaluation.measures import estimate

SUITE = Path(__file__).parent / "questions" / "selections.json"
_LONGEST_QUERY = 2000


@dataclass(frozen=True, slots=True)
class SelectionCase:
    """A selected text, an optional question about it, and the chunks of each expected section."""

    name: str
    selection: str
    question: str | None
    expected: tuple[frozenset[str], ...]


@dataclass(frozen=True, slots=True)
class Score:
    """Recall of expected sections, reciprocal rank, whether the selection is repeated, and pages."""

    recall: float
    reciprocal_rank: float
    repeated: float
    pages: float


def load_cases(retriever: Retriever) -> list[SelectionCase]:
    """Read the suite and find its sections in the index."""
    chunks = sorted(retriever.open().scroll(), key=lambda chunk: (chunk.source, chunk.chunk_index))
    cases = []
    for case in json.loads(SUITE.read_text("utf-8"))["cases"]:
        selected = _section(chunks, case["selection"])
        expected = tuple(frozenset(chunk.id for chunk in _section(chunks, place)) for place in case["expect"])
        selection = selected[0].text.split("\n\n")[0]
        cases.append(SelectionCase(case["selection"], selection, case.get("question"), expected))
    return cases


def measure(cases: list[SelectionCase], find: Callable[[SelectionCase], tuple[Hit, ...]]) -> list[Score]:
    """Score a search, case by case."""
    scores = []
    for case in cases:
        chunks = [hit.chunk for hit in find(case)]
        ranks = [
            min((rank for rank, chunk in enumerate(chunks, 1) if chunk.id in ids), default=0)
            for ids in case.expected
        ]
        found = [rank for rank in ranks if rank]
        scores.append(
            Score(
                len(found) / len(ranks),
                1 / min(found) if found else 0.0,
                float(any(case.selection in chunk.text for chunk in chunks)),
                float(len({chunk.page_url for chunk in chunks})),
            )
        )
    return scores


def related(retriever: Retriever) -> Callable[[SelectionCase], tuple[Hit, ...]]:
    """Return the search with `related`."""
    return lambda case: retriever.related(case.selection, case.question).hits


def plain(retriever: Retriever) -> Callable[[SelectionCase], tuple[Hit, ...]]:
    """Return the search for the raw text, after the question if there is one."""
    return lambda case: (
        retriever.search("\n\n".join(filter(None, (case.question, case.selection)))[:_LONGEST_QUERY]).hits
    )


def _section(chunks: list[Chunk], place: str) -> list[Chunk]:
    path, _, anchor = place.partition("#")
    found = [
        chunk
        for chunk in chunks
        if chunk.source.rpartition(".")[0].endswith(path) and anchor in (chunk.anchor, *chunk.anchors)
    ]
    if not found:
        raise SystemExit(f"{place} is not in the index")
    return found


def main() -> None:
    """Print the measures of both, with an interval on the difference."""
    new_parser(__doc__, "bench.selections").parse_args()
    with connect() as retriever:
        cases = load_cases(retriever)
        ways = {
            "plain search": measure(cases, plain(retriever)),
            "related": measure(cases, related(retriever)),
        }
    print(f"{len(cases)} selections, five chunks each\n")
    rows = []
    for name, scores in ways.items():
        recall, rank, repeated, pages = (
            sum(getattr(score, part) for score in scores) / len(scores) for part in Score.__dataclass_fields__
        )
        rows.append([name, f"{recall:.3f}", f"{rank:.3f}", f"{repeated:.0%}", f"{pages:.1f}"])
    heads = ["", "recall of expected sections", "reciprocal rank", "repeats the selection", "pages"]
    print(table(heads, rows))
    for part in ("recall", "reciprocal_rank"):
        deltas = [getattr(new, part) - getattr(old, part) for old, new in zip(*ways.values(), strict=True)]
        if (gain := estimate(deltas)) is not None:
            print(f"\n{part}: {gain.mean:+.3f} (95 % interval {gain.low:+.3f} to {gain.high:+.3f})")


if __name__ == "__main__":
    main()
