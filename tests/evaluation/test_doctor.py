"""The doctor on healthy and broken collections: every problem is named and has a repair."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from qdrant_client import QdrantClient, models

from recto._util.files import WriterLock
from recto.cli.commands.checks import exit_code
from recto.embedders.granite import embedder as granite
from recto.embedders.granite.embedder import VARIANTS
from recto.evaluation.calibration import calibrate
from recto.evaluation.doctor import calibration, examine
from recto.evaluation.doctor.environment import DoctorContext, Finding
from recto.indexing.promotion import promote
from recto.protocols import Embedder
from recto.settings import ServerOptions
from recto.stores.edge import EdgeStore, layout
from recto.stores.qdrant import ServerStore
from recto.stores.qdrant.collections import LEXICON_KEY
from recto.stores.qdrant.connection import ServerConnection
from recto.testing.parts import chunk, publish, publish_lexical
from recto.types.index import Calibration
from recto.types.search import Vector
from tests import breaking
from tests.book.files import write, write_pages
from tests.conftest import COHERE_KEY
from tests.conftest import QDRANT_KEY as KEY
from tests.doubles.cohere import CohereDouble
from tests.doubles.qdrant import QdrantDouble
from tests.doubles.server import refused_url, status
from tests.library import write_index, write_library
from tests.running import reuse_embedder

NOTHING_SET: Mapping[str, str] = {}
SOIL, SEEDS = "module-1-garden/01-soil.md", "module-1-garden/02-seeds.md"
BREAD = "module-2-kitchen/01-bread.md"


@pytest.fixture(autouse=True)
def _one_model(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Open the model once, except in the test of its weights."""
    if "weights" not in request.node.name:
        monkeypatch.setattr(granite, "built_in_embedder", reuse_embedder)


def examined(
    home: Path,
    collection: str | None = "house",
    settings: Mapping[str, str] = NOTHING_SET,
    directory: Path | None = None,
) -> list[Finding]:
    values = {"RECTO_HOME": str(home), "RECTO_THREADS": "1", "RECTO_PRECISION": "fp32", **settings}
    return list(examine(values, directory, collection))


def bad(found: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in found if finding.severity in ("warning", "error")}


def named(found: list[Finding], check: str) -> Finding:
    return next(finding for finding in found if finding.check == check)


def index_house(book: Path, home: Path, embedder: Embedder, **options: Any) -> None:
    write_index(book, embedder, home, "house", **{"calibrate": calibrate, **options})


def test_missing_includes_and_unresolved_markup(house: Path, tmp_path: Path, embedder: Embedder) -> None:
    shutil.copytree(house, tmp_path / "house")
    book, home = tmp_path / "house" / "book", tmp_path / "house" / "home"
    with (book / SOIL).open("a", encoding="utf-8") as page:
        page.write('\n--8<-- "gone.md"\n\nThe {{ plant }} of the year, and `{{ code }}`.\n')
    index_house(book, home, embedder)
    found = examined(home)
    includes = named(found, "includes")
    assert (includes.severity, includes.name) == ("warning", "unresolved")
    assert includes.evidence == (f"1 included file could not be resolved: {SOIL}: gone.md (missing).",)
    assert "recto index" in includes.repair
    (markup,) = [one for one in found if one.name == "markup"]
    assert markup.severity == "warning"
    assert markup.message.endswith("kept as text: 1 {{…}} (template)")


def test_files_that_cannot_be_read_and_damage_by_reading_have_a_repair(
    house: Path, tmp_path: Path, embedder: Embedder
) -> None:
    shutil.copytree(house, tmp_path / "house")
    book, home = tmp_path / "house" / "book", tmp_path / "house" / "home"
    (book / "latin.md").write_bytes(b"# Caf\xe9\n")
    with (book / SOIL).open("a", encoding="utf-8") as page:
        page.write("\n## |\n\nText.\n")
    index_house(book, home, embedder)
    found = bad(examined(home))
    assert found["unread"].evidence == ("latin.md: not UTF-8 (byte 5)",)
    assert found["empty_heading"].evidence[0].startswith(f"{SOIL}, lines ")
    assert all("recto index" in found[name].repair for name in ("unread", "empty_heading"))
    assert {finding.severity for finding in found.values()} == {"warning"}


def test_a_book_of_which_most_files_are_not_listed(tmp_path: Path, embedder: Embedder) -> None:
    files = {"book/book.toml": "", "book/src/SUMMARY.md": "- [A](a.md)\n"}
    write_pages(write(tmp_path, files) / "book" / "src", "a.md", "b.md", "c.md")
    index_house(tmp_path / "book", tmp_path, embedder)
    found = bad(examined(tmp_path))["unlisted"]
    assert found.severity == "warning"
    assert found.evidence == ("2 files not in the navigation, so not indexed: b.md, c.md.",)


def test_another_precision_is_only_information(house: Path) -> None:
    found = examined(house / "home", settings={"RECTO_PRECISION": "int8"})
    assert not bad(found)
    assert exit_code(found) == 0
    finding = named(found, "fingerprint")
    assert finding.name == "other_precision"
    assert "int8-weights-fp32" in finding.message
    assert "(int8-4), which is compatible" in finding.message


@pytest.mark.parametrize(
    ("breaker", "expected", "evidence"),
    [
        (breaking.of_another_model, "vectors_of_another_model", "cosine of"),
        (breaking.without_page(SOIL), "not_as_published", SOIL),
        (breaking.with_pages_swapped(SOIL, BREAD), "text_is_not_what_was_embedded text_not_in_source", BREAD),
        (breaking.with_pages_swapped(SOIL, BREAD, hashes=True), "not_as_published text_not_in_source", SOIL),
        (breaking.with_passages_shuffled(SEEDS), "shuffled_chunks wrong_id", SEEDS),
        (breaking.without_module, "no_module", "chunk"),
        (breaking.with_noise(0.05), "vector_of_another_text", "chunk"),
        (breaking.without_a_passage, "missing_chunks not_as_published", SOIL),
    ],
)
def test_broken_indexes(house_copy: Path, breaker: breaking.Breaker, expected: str, evidence: str) -> None:
    breaking.publish_broken(house_copy, breaker)
    found = examined(house_copy, "broken")
    assert set(bad(found)) - {"changed"} == set(expected.split())
    assert any(evidence in line for finding in bad(found).values() for line in finding.evidence)
    repairs = [finding.repair for finding in found if finding.severity == "error"]
    assert all(re.fullmatch("recto index .* --collection broken --rebuild", repair) for repair in repairs)
    assert exit_code(found) == 5


def test_the_repair_repairs(house: Path, house_copy: Path, embedder: Embedder) -> None:
    breaking.publish_broken(house_copy, breaking.without_module, "house")
    assert exit_code(examined(house_copy)) == 5
    index_house(house / "book", house_copy, embedder, rebuild=True)
    assert bad(examined(house_copy)) == {}


def test_the_book_has_changed(tmp_path: Path, embedder: Embedder) -> None:
    book, home = write_library(tmp_path / "book"), tmp_path / "home"
    for name in ("module-1-garden", "module-2-kitchen"):
        shutil.rmtree(book / name)
    index_house(book, home, embedder)
    workshop = book / "module-3-workshop"
    (workshop / "03-paint.md").write_text("# Paint\n\nPaint is quite another matter today.\n", "utf-8")
    (workshop / "04-electricity.md").unlink()
    (book / "new.md").write_text("# New\n\nA new page about windows.\n", "utf-8")
    found = examined(home)
    assert set(bad(found)) == {"changed"}
    assert "(pages: 1 new, 1 changed, 1 gone; 2 chunks to embed)" in bad(found)["changed"].message
    assert exit_code(found) == 1
    shutil.rmtree(book)
    assert named(examined(home), "source").name == "gone"


def test_nothing_is_indexed(home: Path) -> None:
    found = examined(home, None)
    assert bad(found) == {}
    assert named(found, "collection").name == "first_run"
    assert exit_code(found) == 0
    missing = examined(home, "nowhere")
    assert named(missing, "collection").name == "missing"
    assert "recto index PATH --collection nowhere" in named(missing, "collection").repair
    assert exit_code(missing) == 2


def test_an_older_generation_answers(house_copy: Path) -> None:
    breaking.publish_broken(house_copy, lambda passages: passages, "house")
    (house_copy / "collections" / "house" / "gen-000002.json").write_text("{}")
    found = examined(house_copy)
    assert bad(found)["damaged"].message.startswith("The index of 'house' is damaged")
    assert exit_code(found) == 5


@pytest.mark.parametrize(
    ("settings", "check", "words"),
    [
        ({"RECTO_PROFILE": "cloud"}, "configuration", "COHERE_API_KEY is required"),
        ({"RECTO_MODEL": "/no/such/model"}, "model", "no directory"),
    ],
)
def test_settings_that_cannot_be_used(home: Path, settings: dict[str, str], check: str, words: str) -> None:
    found = examined(home, None, settings)
    assert words in named(found, check).message
    assert named(found, check).repair
    assert named(found, "packages").severity == "ok"
    assert exit_code(found) == 2


def test_a_dotenv_is_named(home: Path, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("RECTO_STORE=edge\nQDRANT_API_KEY=" + KEY)
    found = examined(home, None, {"RECTO_EMBEDDER": "local"}, tmp_path)
    evidence = named(found, "settings").evidence
    assert f"{tmp_path / '.env'}: QDRANT_API_KEY, RECTO_STORE" in evidence
    assert "edge store" in named(found, "configuration").message
    assert KEY not in str(found)


@pytest.mark.parametrize(("free", "name"), [(100 << 20, "little_space"), (1 << 20, "full")])
def test_a_disk_without_room(home: Path, monkeypatch: pytest.MonkeyPatch, free: int, name: str) -> None:
    home.mkdir()
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=free))
    assert named(examined(home, None), "home").name == name


def test_what_writers_left(house_copy: Path) -> None:
    collection = house_copy / "collections" / "house"
    (house_copy / "journal").mkdir(exist_ok=True)
    (house_copy / "journal" / "house.vectors").write_bytes(b"x" * 5000)
    names = {finding.name for finding in examined(house_copy) if finding.check == "leftovers"}
    assert names == {"journal"}
    with WriterLock(collection / "LOCK", "x"):
        found = examined(house_copy)
    (finding,) = [finding for finding in found if finding.check == "leftovers"]
    assert finding.name == "at_work"
    assert finding.message == f"'house' is being indexed now, by process {os.getpid()}"
    assert bad(found) == {}


def test_a_book_that_is_being_indexed_now(tmp_path: Path, embedder: Embedder) -> None:
    """Neither a change of the book nor a missing index is a problem while a run is at work."""
    book, home = write_library(tmp_path / "book"), tmp_path / "home"
    index_house(book, home, embedder)
    (book / SOIL).write_text("# Soil\n\nAnother text.\n", "utf-8")
    assert set(bad(examined(home))) == {"changed"}
    with WriterLock(home / "collections" / "house" / "LOCK", "x"):
        found = examined(home)
    assert bad(found) == {}
    message = "The book has changed (pages: 1 changed), and 'house' is being indexed now"
    assert named(found, "source").message == message
    (home / "collections" / "new").mkdir()
    with WriterLock(home / "collections" / "new" / "LOCK", "x"):
        found = examined(home, "new")
    assert bad(found) == {}
    assert named(found, "collection").message == "'new' is being indexed now, for the first time"
    (home / "locks").mkdir()
    with WriterLock(home / "locks" / "on-a-server.lock", "x"):
        assert "'on-a-server' is being indexed now" in named(examined(home), "leftovers").message


def test_a_rebuild_is_only_proposed_where_it_helps(tmp_path: Path, embedder: Embedder) -> None:
    book, home = tmp_path / "book", tmp_path / "home"
    book.mkdir()
    (book / "my page.md").write_text("# A page\n\nA name with a space.\n")
    index_house(book, home, embedder, calibrate=lambda *_: Calibration(0.5, 0.6, 10, 10))
    found = examined(home)
    assert set(bad(found)) == {"not_apart"}, "the URL of a page may have a space"
    assert "RECTO_MODEL" in bad(found)["not_apart"].repair
    (book / "two\nlines.md").write_text("# Lines\n\nA name with a line break.\n")
    index_house(book, home, embedder)
    found = examined(home)
    assert bad(found)["bad_url"].message == "1 chunk with an invalid URL"
    assert bad(found)["bad_url"].repair == (
        "Remove control characters from the names of these files, "
        f"then run recto index {book} --collection house"
    )
    assert exit_code(found) == 1
    assert not any("--rebuild" in finding.repair for finding in found)


def test_the_book_was_moved(tmp_path: Path, embedder: Embedder) -> None:
    """A command with the old path would fail."""
    book, home = write_library(tmp_path / "book"), tmp_path / "home"
    index_house(book, home, embedder)
    breaking.publish_broken(home, breaking.without_a_passage, "house")
    book.rename(tmp_path / "elsewhere")
    damage = bad(examined(home))["not_as_published"]
    assert damage.repair == "recto index PATH --collection house --rebuild"


def test_an_index_that_was_not_measured(house_copy: Path) -> None:
    (house_copy / "collections" / "house" / "gen-000001.notes").write_text("{")
    found = examined(house_copy)
    assert named(found, "calibration").name == "missing"
    assert named(found, "calibration").repair == "recto calibrate --collection house"
    assert exit_code(found) == 0


def server(double: QdrantDouble) -> Mapping[str, str]:
    return {"RECTO_EMBEDDER": "local", "QDRANT_URL": double.url, "QDRANT_API_KEY": KEY}


def test_a_payload_index_is_missing(house: Path, tmp_path: Path, qdrant: QdrantDouble) -> None:
    store = ServerStore(
        ServerConnection(qdrant.url, KEY, lambda _: None), tmp_path / "home", ServerOptions(), None
    )
    promote(EdgeStore(house / "home").open("house"), store, "house")
    healthy = examined(tmp_path / "home", settings=server(qdrant))
    assert bad(healthy) == {}
    assert named(healthy, "calibration").severity == "ok"
    (physical,) = qdrant.collections.values()
    del physical.indexes["module_keys"]
    found = examined(tmp_path / "home", settings=server(qdrant))
    assert set(bad(found)) == {"missing"}
    assert "module_keys" in bad(found)["missing"].message
    assert bad(found)["missing"].repair == "recto prepare house"
    assert exit_code(found) == 1
    assert store.prepare("house") == ("module_keys",)
    assert bad(examined(tmp_path / "home", settings=server(qdrant))) == {}
    physical.config["metadata"].pop(LEXICON_KEY)  # type: ignore[union-attr]
    degraded = bad(examined(tmp_path / "home", settings=server(qdrant)))["degraded"]
    assert "lost its vocabulary" in degraded.message
    assert (degraded.repair or "").startswith("recto index ")
    store.close()


def test_services_that_do_not_answer(home: Path, qdrant: QdrantDouble) -> None:
    found = examined(home, settings={**server(qdrant), "QDRANT_URL": refused_url()})
    assert named(found, "not checked").message.startswith("The collection")
    assert [finding.check for finding in found if finding.severity == "error"] == ["engine"]
    assert exit_code(found) == 3
    found = examined(home, settings={**server(qdrant), "QDRANT_API_KEY": "wrong_key"})
    assert bad(found)["configuration"].message.startswith("Qdrant refuses the key in QDRANT_API_KEY")
    assert exit_code(found) == 2
    assert "wrong_key" not in str(found)


def test_cohere_is_asked(home: Path, qdrant: QdrantDouble, cohere: CohereDouble) -> None:
    cloud = {"COHERE_API_KEY": COHERE_KEY, "COHERE_API_URL": cohere.url, "COHERE_PACE": "off"}
    settings = {**cloud, "QDRANT_URL": qdrant.url, "QDRANT_API_KEY": KEY}
    found = examined(home, settings=settings)
    assert named(found, "model").severity == "ok"
    assert "cohere embedder" in named(found, "configuration").message
    assert named(found, "collection").name == "missing"
    cohere.always(status(401, {"message": f"invalid api token {COHERE_KEY}"}))
    found = examined(home, settings=settings)
    assert named(found, "model").severity == "error"
    assert KEY not in str(found)
    assert COHERE_KEY not in str(found)


def test_an_old_server(home: Path) -> None:
    with QdrantDouble(api_key=KEY, version="1.9.4", metadata_supported=False) as double:
        found = examined(home, settings=server(double))
    assert bad(found)["old_server"].repair == "Update the server to 1.16 or later."


def foreign(double: QdrantDouble, name: str, points: list[models.PointStruct], dim: int) -> None:
    with pytest.warns(UserWarning, match="insecure"):
        client = QdrantClient(url=double.url, api_key=KEY, check_compatibility=False)
    params = models.VectorParams(size=dim, distance=models.Distance.COSINE)
    client.create_collection(name, vectors_config=params)
    client.upsert(name, points, wait=True)
    client.close()


def test_a_foreign_collection(home: Path, house: Path, qdrant: QdrantDouble, embedder: Embedder) -> None:
    index = EdgeStore(house / "home").open("house")
    chunks = sorted(index.scroll(), key=lambda chunk: (chunk.source, chunk.chunk_index))
    vectors = embedder.embed_documents([chunk.text for chunk in chunks])

    def points(change: Callable[[Vector], Vector] = list, **more: str) -> list[models.PointStruct]:
        payloads = (
            {"content": one.text, "url": one.page_url, "title": one.title, "chunk_index": one.chunk_index}
            for one in chunks
        )
        return [
            models.PointStruct(id=number, vector=change(vectors[number]), payload=payload | more)
            for number, payload in enumerate(payloads)
        ]

    foreign(qdrant, "theirs", points(), embedder.dim)
    found = examined(home, "theirs", server(qdrant))
    assert set(bad(found)) == {"missing"}  # a payload index on the address
    assert "so it is this model" in next(finding.message for finding in found if finding.name == "same_model")
    assert named(found, "dialect").severity == "ok"
    foreign(qdrant, "turned", points(lambda vector: [*vector[1:], vector[0]]), embedder.dim)
    found = examined(home, "turned", server(qdrant))
    assert "RECTO_MODEL" in bad(found)["vectors_of_another_model"].repair
    assert exit_code(found) == 2
    foreign(qdrant, "spoilt", points(title="", url="no address")[:6], embedder.dim)
    assert {"bad_url", "repeated_chunks"} <= set(bad(examined(home, "spoilt", server(qdrant))))


def test_a_check_that_fails_costs_only_itself(house: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A payload that nobody could foresee must not end the examination."""
    monkeypatch.setattr("recto.evaluation.doctor.heading_question", lambda chunk: 1 / 0)
    found = examined(house / "home")
    failed = named(found, "search")
    assert failed.message == "The check itself failed: ZeroDivisionError: division by zero"
    assert "bug" in failed.repair
    assert "--rebuild" not in failed.repair
    assert named(found, "content").severity == "ok"


def test_damage_of_a_large_index_is_found(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_ALWAYS_DIGEST", 0)
    monkeypatch.setattr(layout, "_SMALL_FILE", 100)
    publish(EdgeStore(home), "house", [chunk(number) for number in range(20)])
    generation = home / "collections" / "house" / "gen-000001"
    file = max(generation.rglob("*.mmap"), key=lambda one: one.stat().st_size)
    status = file.stat()
    with file.open("r+b") as damaged:  # size and time stay
        damaged.write(b"\x01\x02\x03")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    EdgeStore(home).open("house")  # trusted for a day
    finding = named(examined(home), "collection")
    assert finding.severity == "error"
    assert file.name in finding.message


def test_damaged_weights_are_made_again(tmp_path: Path) -> None:
    weights = tmp_path / "home" / "cache" / VARIANTS["fp32"].weights
    weights.parent.mkdir(parents=True)
    weights.write_bytes(b"damaged")
    found = [finding for finding in examined(tmp_path / "home", None) if finding.check == "model"]
    assert found[0].name == "repaired"
    assert weights.stat().st_size > 1 << 20


def test_a_home_that_others_can_read_is_noted(home: Path) -> None:
    for mode, repairs in ((0o755, ["", f"chmod 700 {home}"]), (0o700, [""])):
        home.mkdir(exist_ok=True)
        home.chmod(mode)
        assert [finding.repair for finding in examined(home, None) if finding.check == "home"] == repairs


@pytest.mark.parametrize(
    ("language", "message"),
    [("en", "Cosine similarities below 0.500 are noise"), ("de", "in 'de' have none")],
)
def test_noise_floor_is_for_english_books(tmp_path: Path, language: str, message: str) -> None:
    store = EdgeStore(tmp_path)
    publish_lexical(store, "house", [replace(chunk(number), language=language) for number in range(3)])
    store.save_calibration(store.open("house").info, Calibration(0.5, 0.9, 40, 40))
    (finding,) = calibration(DoctorContext({}, tmp_path, "house"), store.open("house"))
    assert finding.severity == "ok"
    assert message in finding.message
