"""Run the service: one process, or several that a supervisor replaces when they die; SIGTERM lets what is under way end."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from recto._util.retry import Notify
from recto.errors import CollectionMissing, missing_extra
from recto.server.http.options import ServeOptions
from recto.server.listening import BACKLOG, address, listen
from recto.settings import Settings

if TYPE_CHECKING:
    from starlette.types import ASGIApp
    from uvicorn import Config

_WORKER_SECONDS = 60
_MULTIPROCESS = "PROMETHEUS_MULTIPROC_DIR"


@dataclass(frozen=True, slots=True)
class Factory:
    """Makes the application in the process that runs it; it travels to workers, which share nothing but the listening socket."""

    settings: Settings
    options: ServeOptions

    def __call__(self) -> ASGIApp:
        """Make it."""
        from recto.server import listening as memory
        from recto.server.http import logs
        from recto.server.http.app import make_app

        logs.set_up(secrets_of(self.settings, self.options))
        memory.share_arenas()
        _end_with_parent()
        return make_app(self.settings, self.options, close_at_exit=True)


def serve(settings: Settings, options: ServeOptions, notify: Notify) -> None:
    """Listen and answer until a signal ends it."""
    try:
        import fastapi
        import uvicorn
    except ImportError as error:
        raise missing_extra("The service", "serve") from error
    del fastapi
    with listen(options.host.strip("[]"), options.port) as listener:
        _prepare(settings, options, notify)
        with _shared_figures(options.workers), _ended_by_sigterm():
            notify(f"Recto listens at {address(listener)}; Ctrl-C ends it.")
            config = server_config(Factory(_shared_cores(settings, options.workers), options), options)
            if options.workers == 1:
                uvicorn.Server(config).run(sockets=[listener])
                return
            from recto.server.http import logs
            from recto.server.listening import Supervisor

            logs.set_up(secrets_of(settings, options))
            Supervisor(config, sockets=[listener]).run()


def secrets_of(settings: Settings, options: ServeOptions) -> tuple[str, ...]:
    """Return what must not be seen in a log: keys, and where the engines are."""
    return (
        settings.qdrant_api_key,
        settings.cohere_api_key,
        *options.keys,
        settings.qdrant_url,
        settings.cohere_api_url,
    )


def _prepare(settings: Settings, options: ServeOptions, notify: Notify) -> None:
    """Tell what is wrong with the configuration before any worker starts, and index the sample book on the very first run."""
    from recto.api import open_collection, open_embedder, open_store

    embedder, store = open_embedder(settings, notify), open_store(settings, notify)
    try:
        if settings.store == "edge" and not store.collections():
            open_collection(settings, embedder, store, settings.collection_or(options.default), notify)
    except CollectionMissing as error:
        notify(f"[WARNING] {error.message}. {error.hint} It is answered from as soon as it is there.")
    finally:
        embedder.close()
        store.close()


def _end_with_parent() -> None:
    """Let a worker whose supervisor was killed end too, or it would hold the port for ever."""
    from multiprocessing import parent_process

    parent = parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True, name="recto-parent").start()


def server_config(factory: Factory, options: ServeOptions) -> Config:
    """Say how the server library runs the application."""
    from uvicorn import Config

    from recto.server.listening import IDLE_SECONDS, BoundedConnection

    return Config(
        factory,
        factory=True,
        http=BoundedConnection,
        workers=options.workers,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # a caller could else name any address as its own, and be counted under it
        ws="none",
        lifespan="on",
        backlog=BACKLOG,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=max(1, round(options.drain)),
        timeout_worker_healthcheck=_WORKER_SECONDS,
    )


def _shared_cores(settings: Settings, workers: int) -> Settings:
    """Share the cores among workers that would else each start a thread for every core."""
    return (
        settings
        if "RECTO_THREADS" in os.environ
        else replace(settings, threads=max(1, settings.threads // workers))
    )


@contextmanager
def _shared_figures(workers: int) -> Iterator[None]:
    """Give several workers a directory for their figures, so that any of them can show the sum."""
    if workers == 1:
        yield
        return
    directory = tempfile.mkdtemp(prefix="recto-figures-")
    os.environ[_MULTIPROCESS] = (
        directory  # workers inherit it, and it must be there before they import the client
    )
    try:
        yield
    finally:
        del os.environ[_MULTIPROCESS]
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Let SIGTERM be an ordinary end: the server sends it to itself once more when it has drained."""
    before = signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
