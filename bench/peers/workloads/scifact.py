"""SciFact with every system's index and the same vectors: only the search differs."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from bench.peers.dataset import Dataset, write_texts
from bench.peers.listing import System
from bench.peers.process import RunnerError
from bench.peers.running import Bench
from bench.peers.workloads.quality import add, add_failure
from recto.evaluation.measures import Judged, Measure

WORK = "SciFact nDCG@10"
PART = "SciFact nDCG@10, on a small and thus easier part"
_MEASURE = Measure("nDCG", 10)
_FEW = 40


def run(bench: Bench, folder: Path, *, quick: bool = False) -> None:
    """Index the abstracts and search for the claims of the test set; a quick run uses a part of both."""
    texts, claims = load(folder)
    if quick:
        claims = dict(list(claims.items())[:_FEW])
        wanted = set().union(*claims.values())
        texts = {
            id: text for number, (id, text) in enumerate(texts.items()) if number % 10 == 0 or id in wanted
        }
    dataset = write_texts(texts, list(claims), bench.vectors, bench.scratch, "scifact")
    work = PART if quick else WORK
    scores = {}
    for system in bench.whole_systems:
        try:
            scores[system.name] = _scores(bench, system, dataset, claims)
        except RunnerError as error:
            add_failure(bench, work, system.name, str(error))
    add(bench, work, scores, {"documents": len(texts)})


def load(folder: Path) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Return the abstracts by id, and the ids that answer each claim."""
    corpus = [json.loads(line) for line in (folder / "corpus.jsonl").read_text("utf-8").splitlines()]
    texts = {_id(each["_id"]): f"{each['title']} {each['text']}".strip() for each in corpus}
    queries = {
        each["_id"]: each["text"]
        for each in map(json.loads, (folder / "queries.jsonl").read_text("utf-8").splitlines())
    }
    claims: dict[str, set[str]] = {}
    with (folder / "qrels" / "test.tsv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            if int(row["score"]) > 0:
                claims.setdefault(queries[row["query-id"]], set()).add(_id(row["corpus-id"]))
    return texts, claims


def _id(name: str) -> str:
    return str(uuid5(NAMESPACE_URL, f"scifact/{name}"))


def _scores(bench: Bench, system: System, dataset: Dataset, claims: dict[str, set[str]]) -> list[float]:
    bench.notify(f"{system.title}: SciFact")
    folder = bench.scratch / "indexes" / f"{system.name}-scifact"
    folder.parent.mkdir(exist_ok=True)
    with bench.start(system) as runner:
        bench.embed(runner, "precomputed", dataset.folder)
        runner.ask("index", pieces=str(dataset.pieces), folder=str(folder))
    with bench.start(system) as runner:
        bench.embed(runner, "precomputed", dataset.folder)
        runner.ask("open", folder=str(folder))
        found = runner.ask("ask", questions=list(claims), top=10)["found"]
    judged = (
        Judged(tuple(float(id in claims[claim]) for id, _ in hits), (1.0,) * len(claims[claim]))
        for claim, hits in zip(claims, found, strict=True)
    )
    return [_MEASURE.of(one) or 0.0 for one in judged]
