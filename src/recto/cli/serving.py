"""`recto serve`: check how the service is to be run, then run it."""

from __future__ import annotations

from typing import Any

from recto.cli.running import Exit, tell, warn
from recto.http.options import serve_options
from recto.settings import load_settings


def serve(**flags: Any) -> Exit:
    """Answer requests until a signal ends it."""
    settings = load_settings()
    options = serve_options(**flags)
    for warning in options.warnings():
        warn(warning)
    from recto.http.serving import serve as run

    run(settings, options, tell)
    return Exit.OK
