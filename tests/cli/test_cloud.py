"""The cloud profile: commands against doubles of Cohere and Qdrant, on real sockets."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections import Counter
from pathlib import Path

import pytest
from qdrant_client import QdrantClient

from recto.book.sources.tree import open_book
from recto.cli import run as run_command
from recto.cli.retrieve import retrieve as retrieve_command
from recto.contracts import DEFAULT_COLLECTIONS
from recto.embedders import cohere as cohere_module
from recto.stores.qdrant import connection as connection_module
from tests.cli.conftest import cloud_variables
from tests.conftest import COHERE_KEY, QDRANT_KEY
from tests.doubles import server
from tests.doubles.cohere import CohereDouble
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import Double, Fault, refused_url, status
from tests.running import ROOT, recto, retrieve, start, wait_until

TABLE = Path(__file__).with_name("cloud_faults.md")


def small(home: Path, cloud: dict[str, str], small_book: Path, name: str = "garden") -> None:
    done = recto(home, "index", str(small_book), "--collection", name, **cloud)
    assert done.returncode == 0, done.stderr


def test_index_query_validate(
    home: Path,
    small_book: Path,
    cloud: dict[str, str],
    cohere: CohereDouble,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("recto.api.sample_source", lambda: open_book(small_book))  # it is large
    done = recto(home, "index", "--sample", **cloud)
    assert done.returncode == 0, done.stderr
    assert "[WARNING] QDRANT_API_KEY is sent over plain http" in done.stderr
    assert QDRANT_KEY not in done.stderr
    assert retrieve(home, "dough", "--top-k", "10", "--verbose", **cloud).returncode == 0
    data = json.loads(retrieve(home, "dough", "--module", "garden", "--json", **cloud).stdout)
    assert {result["module_name"] for result in data["results"]} == {"garden"}
    assert retrieve(home, "--validate", **cloud).returncode == 5, "its questions are about another book"
    types = {request.body["input_type"] for request in cohere.requests[-3:]}
    assert types == {"search_query"}
    assert retrieve(home, "dough", "--module", "gardn", **cloud).returncode == 1
    (row,) = json.loads(recto(home, "collections", "--json", **cloud).stdout)
    assert row["collection"] == "recto-sample"
    assert row["aliases"] == sorted(DEFAULT_COLLECTIONS)


FAULTS: list[tuple[str, Fault | None]] = [
    ("refuses the connection", None),
    ("hangs", server.hang(30)),
    ("sends one byte at a time", server.slow_drip(0.05, 30)),
    ("401", status(401)),
    ("403", status(403)),
    ("404", status(404)),
    ("429", status(429)),
    ("429, Retry-After: 1", status(429, headers={"Retry-After": "1"})),
    ("429, Retry-After: 120", status(429, headers={"Retry-After": "120"})),
    ("500", status(500)),
    ("503 with HTML", status(503, b"<html>Service Unavailable</html>", content_type="text/html")),
    ("closes the connection", server.drop()),
    ("resets the connection", server.reset()),
    ("200 with HTML", server.rubbish()),
    ("200 with {}", server.rubbish({})),
]


def configure_fault(
    service: str, fault: Fault | None, cohere: CohereDouble, qdrant: QdrantDouble
) -> tuple[dict[str, str], Double | None]:
    if fault is None:
        urls = {"Cohere": (refused_url(), qdrant.url), "Qdrant": (cohere.url, refused_url())}[service]
        return cloud_variables(*urls), None
    double: Double = cohere if service == "Cohere" else qdrant
    double.always(fault)
    return cloud_variables(cohere.url, qdrant.url), double


@pytest.mark.long
def test_the_faults_of_services(
    cohere: CohereDouble,
    qdrant: QdrantDouble,
    home: Path,
    small_book: Path,
    cloud: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Check message, exit code and number of calls for every fault; no file may contain a key."""
    small(home, cloud, small_book)
    monkeypatch.setattr(cohere_module, "_QUERY_SECONDS", 6.0)  # only the timeouts are shorter
    monkeypatch.setattr(connection_module, "_READ_SECONDS", 2)
    monkeypatch.chdir(ROOT)
    outcomes: dict[tuple[str, str, int, str], list[str]] = {}
    for service in ("Cohere", "Qdrant"):
        for name, fault in FAULTS:
            values, double = configure_fault(service, fault, cohere, qdrant)
            before = len(double.requests) if double else 0
            for key, value in {**values, "RECTO_HOME": str(home)}.items():
                monkeypatch.setenv(key, value)
            code = run_command(retrieve_command, ["dough", "--collection", "garden"], "retrieve.py")
            calls = str(len(double.requests) - before) if double else "–"
            for each in (cohere, qdrant):
                each.always(None)
            output = capsys.readouterr()
            assert "Traceback" not in output.err
            assert COHERE_KEY not in output.err + output.out
            assert QDRANT_KEY not in output.err + output.out
            errors = [line for line in output.err.split("\n") if line.startswith("[ERROR]")]
            message = next(iter(errors), "(answered)")
            message = re.sub(r"http://127\.0\.0\.1:\d+", "URL", message.removeprefix("[ERROR] "))
            outcomes.setdefault((service, message, code, calls), []).append(name)
    for path in home.rglob("*"):
        if path.is_file():
            left = path.read_bytes()
            assert COHERE_KEY.encode() not in left
            assert QDRANT_KEY.encode() not in left
    rows = [
        f"| {service} | {'; '.join(names)} | {message} | {code} | {calls} |"
        for (service, message, code, calls), names in outcomes.items()
    ]
    table = "\n".join(["| service | fault | message | exit code | calls |", "|---|---|---|---|---|", *rows])
    text = TABLE.read_text("utf-8")
    introduction, _, expected = text.partition("\n\n")
    if os.environ.get("WRITE_TABLES"):
        TABLE.write_text(f"{introduction}\n\n{table}\n", "utf-8")
    else:
        assert expected == f"{table}\n", "run the test with WRITE_TABLES=1 to update the table"


@pytest.mark.parametrize(
    "after", [pytest.param(2, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.long)]
)
def test_a_killed_run_embeds_nothing_twice(
    tmp_path: Path, home: Path, cohere: CohereDouble, qdrant: QdrantDouble, cloud: dict[str, str], after: int
) -> None:
    book, sections = tmp_path / "big.md", 100 * after
    text = "Every section has its own words. " * 9
    book.write_text("# Big\n" + "".join(f"\n## Section {n}\n\nword{n} {text}\n" for n in range(sections)))
    cohere.script(*(server.delay(0.15) for _ in range(50)))
    program = start(home, "index", str(book), "--collection", "big", **cloud)
    wait_until(lambda: len(cohere.requests) >= after, 60)
    program.kill()
    program.communicate()
    done = recto(home, "index", str(book), "--collection", "big", **cloud)
    assert done.returncode == 0, done.stderr
    bodies = [request.body for request in cohere.requests]
    documents = [body["texts"] for body in bodies if body["input_type"] == "search_document"]
    sent = Counter(text for texts in documents for text in texts)
    assert len(sent) == sections
    assert sum(count - 1 for count in sent.values()) <= 96, "only the batch in flight is sent again"
    assert not list((home / "journal").glob("*")), "publishing deletes the journal"
    done = recto(home, "search", "word7", "--collection", "big", "--json", **cloud)
    assert json.loads(done.stdout)["total_found"] == 5


def test_promote_and_parity(house: Path, home: Path, qdrant: QdrantDouble, tmp_path: Path) -> None:
    """`tests/live` compares all questions of the sample book with a real server."""
    shutil.copytree(house / "home", home)
    server = {"QDRANT_URL": qdrant.url, "QDRANT_API_KEY": QDRANT_KEY}
    suite = tmp_path / "suite.json"
    suite.write_text(json.dumps({"queries": [{"query": "compost", "expect": {"module": "garden"}}]}))
    parity = ("parity", "--suite", str(suite), "--collection", "house")
    done = recto(home, "promote", "--collection", "house", **server)
    assert done.returncode == 0, done.stderr
    assert ": the results are the same on both sides." in done.stdout
    done = recto(home, *parity, **server)
    assert done.returncode == 0, done.stdout
    assert done.stdout.splitlines() == [
        f"{mode}: the same top 5 on both sides for 1 of 1 question."
        for mode in ("hybrid", "dense", "lexical")
    ]
    with pytest.warns(UserWarning, match="insecure"):
        client = QdrantClient(url=qdrant.url, api_key=QDRANT_KEY, check_compatibility=False)
    records, _ = client.scroll("house", limit=5)
    client.delete("house", points_selector=[record.id for record in records], wait=True)
    client.close()
    done = recto(home, *parity, "--top-k", "100", "--json", **server)
    assert done.returncode == 5
    assert "dense" in {row["mode"] for row in json.loads(done.stdout)["differences"]}
