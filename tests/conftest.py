"""Shared parts, all of them real: the model, the engine, the sample book indexed once for the whole run."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from recto._util.files import WriterLock
from recto.api import index_sample, open_store
from recto.book.parsing import formats, reader_version
from recto.contracts import DEFAULT_COLLECTIONS, QUERY_COLLECTION
from recto.evaluation.calibration import calibrate
from recto.protocols import Embedder
from recto.search.retriever import Retriever
from recto.settings import SAMPLE_COLLECTION, Settings
from recto.stores.edge import EdgeStore, build
from tests.doubles.cohere import CohereDouble
from tests.doubles.qdrant import QdrantDouble
from tests.library import write_index, write_library
from tests.shared_embedder import shared_embedder

if (
    signal.getsignal(signal.SIGINT) is signal.SIG_IGN
):  # so it is for a run in the background, and so it would be for all that tests start
    signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("recto", deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
settings.load_profile("recto")

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "recto"
MARKED_DIRECTORIES = {"bench": "long", "browser": "browser", "live": "live", "sites": "sites"}
SHARED = Path(tempfile.gettempdir()) / f"recto-tests-{os.getuid()}"
COHERE_KEY, QDRANT_KEY = "co_secret_1234567890", "qdrant_secret_0987654321"
CONFIGURATION = ("RECTO_", "COHERE_", "OPENAI_", "QDRANT_", "COLLECTION_NAME")
THREADED_DIRECTORIES = {"conformance", "indexing", "search", "stores"}
START_WORKER = build.start_worker
TEST_OPTIONS = ("RECTO_TEST_", "RECTO_CORPORA")  # which services and books the tests may use


@pytest.fixture(scope="session", autouse=True)
def _no_configuration() -> Iterator[None]:
    """Nothing of the developer's own settings reaches a test."""
    with pytest.MonkeyPatch.context() as patch:
        for name in list(os.environ):
            if name.startswith(CONFIGURATION) and not name.startswith(TEST_OPTIONS):
                patch.delenv(name)
        patch.setenv("XDG_CONFIG_HOME", os.devnull)  # without a settings file of the developer
        yield


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests that need a browser and those of the benchmarks by their directory."""
    for item in items:
        parts = item.path.relative_to(TESTS).parts
        if parts[0] in MARKED_DIRECTORIES:
            item.add_marker(MARKED_DIRECTORIES[parts[0]])


class ThreadWorker(threading.Thread):
    """What a build uses of `subprocess.Popen`: to start a process takes longer than its work on a small book."""

    returncode = 0

    def __init__(self, directory: Path, dim: int, _: object) -> None:
        super().__init__(daemon=True)
        (source, own_input), (own_output, target) = os.pipe(), os.pipe()
        self.stdin, self.stdout = os.fdopen(own_input, "wb"), os.fdopen(own_output, "rb")
        self._arguments = directory, dim, os.fdopen(source, "rb"), os.fdopen(target, "wb", buffering=0)
        self.start()

    def run(self) -> None:
        with self._arguments[2], self._arguments[3]:
            self.returncode = int(not build.run_worker(*self._arguments))

    def wait(self) -> None:
        self.join()


@pytest.hookimpl(tryfirst=True)  # before fixtures build an index
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Build the embedded indexes of some directories in threads; tests of the process use START_WORKER."""
    is_threaded = item.path.relative_to(TESTS).parts[0] in THREADED_DIRECTORIES
    build.start_worker = ThreadWorker if is_threaded else START_WORKER  # type: ignore[assignment]


@pytest.fixture(scope="session")
def shared_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home for all processes of a test run, with the built-in model's weights."""
    base = tmp_path_factory.getbasetemp()
    home = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "shared-home"
    (SHARED / "cache").mkdir(parents=True, exist_ok=True)
    home.mkdir(exist_ok=True)
    with suppress(FileExistsError):
        (home / "cache").symlink_to(SHARED / "cache")
    return home


@pytest.fixture(scope="session")
def real_embedder(shared_home: Path) -> Embedder:
    """In fp32, whose numbers are the same to the sixth digit on every machine and in batches of any size."""
    return shared_embedder(SHARED, 1, "fp32").real


@pytest.fixture(scope="session")
def embedder(real_embedder: Embedder) -> Embedder:
    """The real embedder, which remembers what it embedded."""
    return shared_embedder(SHARED, 1, "fp32")


_INDEX_PARTS = "_util book embedders evaluation indexing sample search stores types"


def index_key() -> str:
    """Return a digest of all that an index of the sample book depends on."""
    digest = hashlib.sha256(sys.version.encode())
    for part in _INDEX_PARTS.split():
        path = SOURCE / part
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if file.is_file() and file.suffix != ".pyc":
                digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


@pytest.fixture(scope="session")
def sample_home(shared_home: Path, embedder: Embedder) -> Path:
    """A home in which the sample book is indexed; tests only read it.

    The index is kept for the next test run, until something changes that it depends on.
    """
    kept = SHARED / index_key()
    with WriterLock(SHARED / "tests.lock", "The sample book", wait=print):
        if not (kept / "aliases.json").exists():
            settings = Settings("local", "edge", kept)
            store = open_store(settings, print)
            index_sample(settings, embedder, store, lambda _: None)
            store.set_aliases(DEFAULT_COLLECTIONS, SAMPLE_COLLECTION)
        if not (shared_home / "aliases.json").exists():
            shutil.copytree(kept, shared_home, dirs_exist_ok=True)
    return shared_home


@pytest.fixture(scope="session")
def retriever(sample_home: Path, embedder: Embedder) -> Retriever:
    return Retriever(embedder, EdgeStore(sample_home), QUERY_COLLECTION)


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory, embedder: Embedder) -> Path:
    """A directory with a book of thirteen pages and a home in which it is indexed as `house`; tests only read it."""
    root = tmp_path_factory.mktemp("house")
    write_index(write_library(root / "book"), embedder, root / "home", "house", calibrate=calibrate)
    return root


@pytest.fixture(scope="session")
def house_retriever(house: Path, embedder: Embedder) -> Retriever:
    return Retriever(embedder, EdgeStore(house / "home"), "house")


@pytest.fixture(scope="session")
def house_settings(house: Path) -> Settings:
    """The settings of a service for `house`."""
    return Settings("local", "edge", house / "home", threads=1, precision="fp32", collection="house")


@pytest.fixture
def house_copy(house: Path, home: Path) -> Path:
    """A copy of the home of `house`, for tests that change it."""
    return shutil.copytree(house / "home", home)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def small_book(tmp_path: Path) -> Path:
    """A book of four short pages in three modules."""
    root = tmp_path / "book"
    pages = {
        "welcome.md": "# Welcome\n\nThis little book is about gardens and kitchens.\n",
        "module-1-garden/01-soil.md": "# Soil\n\nSoil holds water and air. Worms keep it loose.\n\nCompost feeds the soil.\n",
        "module-1-garden/02-seeds.md": "# Seeds\n\nSow beans after the last frost.\n",
        "module-2-kitchen/01-bread.md": "# Bread\n\nKnead the dough until it is smooth, then let it rise.\n",
    }
    for name, text in pages.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, "utf-8")
    return root


@pytest.fixture
def cohere() -> Iterator[CohereDouble]:
    with CohereDouble(api_key=COHERE_KEY) as double:
        yield double


@pytest.fixture
def qdrant() -> Iterator[QdrantDouble]:
    with QdrantDouble(api_key=QDRANT_KEY) as double:
        yield double


@pytest.fixture
def waits() -> list[float]:
    """Where a part that would sleep notes how long instead."""
    return []


@pytest.fixture
def told() -> list[str]:
    """Where a part that would tell a person something notes it instead."""
    return []


@pytest.fixture
def install_plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return a function that installs a distribution: its entry points by group, and its module."""

    def install(distribution: str, entry_points: dict[str, str], code: str, version: str = "1.0") -> None:
        site, module = tmp_path / "site-packages" / distribution, distribution.replace("-", "_")
        metadata = site / f"{module}-{version}.dist-info"
        metadata.mkdir(parents=True)
        about = f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        (metadata / "METADATA").write_text(about)
        listed = "".join(f"[{group}]\n{entries}\n" for group, entries in entry_points.items())
        (metadata / "entry_points.txt").write_text(listed)
        (site / f"{module}.py").write_text(code)
        monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.syspath_prepend(str(site))
        formats.cache_clear()
        reader_version.cache_clear()

    yield install
    formats.cache_clear()
    reader_version.cache_clear()
