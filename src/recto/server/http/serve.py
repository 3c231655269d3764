"""Run the HTTP server in one process, or in several workers; SIGTERM drains requests in progress."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from recto.contracts import DEFAULT_COLLECTIONS, HTTP_COLLECTION
from recto.errors import CollectionMissing, ConfigurationError, missing_extra
from recto.indexing import default_collection
from recto.plugins import Notify
from recto.server.http import METRICS_DIRECTORY, ServeOptions
from recto.settings import SAMPLE_COLLECTION, Settings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from recto.protocols import Store

_HEALTHCHECK_SECONDS = 30


def _make_app(settings: Settings, options: ServeOptions) -> FastAPI:
    """Make the application in each worker process; workers share only the listening socket."""
    from recto.server.http.app import make_app
    from recto.server.listening import configure_logging

    configure_logging((*settings.secrets, *settings.addresses, *options.keys))
    _exit_with_parent()
    return make_app(settings, options, close_at_exit=True)


def serve(settings: Settings, options: ServeOptions, notify: Notify) -> None:
    """Serve requests until a signal arrives."""
    try:
        import fastapi
        import uvicorn
        from uvicorn.supervisors import Multiprocess
    except ImportError as error:
        raise missing_extra("The service", "serve") from error
    del fastapi
    from recto.server.listening import base_url, configure_logging, listen, server_config

    with listen(options.host.strip("[]"), options.port) as listener:
        options = _prepare(settings, options, notify)
        with _shared_metrics(options.workers), _graceful_sigterm():
            notify(f"Recto listens at {base_url(listener)}; press Ctrl-C to stop.")
            config = server_config(
                partial(_make_app, _share_cores(settings, options.workers), options),
                options.drain,
                options.proxies,
                factory=True,
                workers=options.workers,
                timeout_worker_healthcheck=_HEALTHCHECK_SECONDS,
            )
            if options.workers == 1:
                uvicorn.Server(config).run(sockets=[listener])
                return
            configure_logging((*settings.secrets, *settings.addresses, *options.keys))
            Multiprocess(config, sockets=[listener]).run()


def _prepare(settings: Settings, options: ServeOptions, notify: Notify) -> ServeOptions:
    """Report configuration errors before any worker starts, and index the sample book on the first run.

    Return the options with the collection that the service serves by default.
    """
    from recto.api import open_collection, open_embedder, open_store
    from recto.search.query_log import prepare_query_log
    from recto.server.http.answers import import_httpx

    prepare_query_log(settings)
    if settings.answer.url:
        import_httpx()
        notify(f"Answers: {settings.answer.model}, at most {settings.answer.daily} a day")
    embedder, store = open_embedder(settings, notify), open_store(settings, notify)
    try:
        if store.is_local and not store.collections():
            name = settings.collection_or(options.default)
            open_collection(settings, embedder, store, name, notify, DEFAULT_COLLECTIONS)
        return replace(options, default=_served_collection(settings, options, store))
    except CollectionMissing as error:
        notify(f"[WARNING] {error.message}. {error.hint} The server uses it as soon as it exists.")
    except ConfigurationError as error:
        notify(f"[WARNING] {error.message}. {error.hint}")
    finally:
        embedder.close()
        store.close()
    return options


def _served_collection(settings: Settings, options: ServeOptions, store: Store) -> str:
    """Return the default of the service: the documented name if a book has it, else the only book."""
    named = settings.collection is not None or options.default != HTTP_COLLECTION
    if named or not store.is_local:  # a remote store may be down, and the service starts nevertheless
        return options.default
    target = store.aliases().get(HTTP_COLLECTION, HTTP_COLLECTION)
    if target != SAMPLE_COLLECTION and target in store.collections():
        return HTTP_COLLECTION
    name = default_collection(settings, store)
    return HTTP_COLLECTION if name == SAMPLE_COLLECTION else name


def _exit_with_parent() -> None:
    """End this worker if its supervisor is killed: otherwise it would hold the port forever."""
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True, name="recto-parent").start()


def _share_cores(settings: Settings, workers: int) -> Settings:
    """Divide the cores among the workers, unless RECTO_THREADS is set."""
    if "RECTO_THREADS" in os.environ:
        return settings
    return replace(settings, threads=max(1, settings.threads // workers))


@contextmanager
def _shared_metrics(workers: int) -> Iterator[None]:
    """Give several workers a directory for their metrics, so that each can show the sum."""
    if workers == 1:
        yield
        return
    directory = tempfile.mkdtemp(prefix="recto-metrics-")
    os.environ[METRICS_DIRECTORY] = directory  # prometheus_client reads it when workers import it
    try:
        yield
    finally:
        del os.environ[METRICS_DIRECTORY]
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _graceful_sigterm() -> Iterator[None]:
    """Exit with code 0 on SIGTERM: uvicorn sends the signal to itself once more when it has drained."""
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
