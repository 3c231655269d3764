"""`recto export`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from recto._util.text import plural
from recto.cli import options
from recto.cli.commands.collections import megabytes, open_configured_store
from recto.cli.output import emit
from recto.cli.runner import Exit, notify, progress_bar
from recto.errors import InvalidArgument
from recto.indexing import default_collection
from recto.search.outline import export_llms
from recto.server.semantic_export import Semantic
from recto.server.static_export import export_static
from recto.settings import load_settings

_DIRECTORY: dict[str, Any] = {"type": click.Path(path_type=Path, file_okay=False), "metavar": "DIR"}


@click.command()
@click.option(
    "--llms",
    **_DIRECTORY,
    help="Write llms.txt, llms-full.txt, skill.md and each page as Markdown to this directory.",
)
@click.option(
    "--static",
    **_DIRECTORY,
    help="Write the widget and an index that it searches without a server to this directory.",
)
@click.option(
    "--semantic",
    type=click.Choice(["auto", "on", "off"]),
    help="With --static: also search by meaning, which loads 11 MB in the browser after the first search. "
    "Default: auto, which is on for English books that the built-in model indexed.",
)
@options.value_option(
    "--site-url",
    "URL",
    "With --llms: write pages at their paths below this URL, such as https://example.org/book/.",
    "the host of each page",
)
@options.collection
@options.as_json
def export(
    llms: Path | None,
    static: Path | None,
    semantic: Semantic | None,
    site_url: str | None,
    collection: str | None,
    as_json: bool,
) -> Exit:
    """Write files to publish with the site of a book: its text for language models, or a static search.

    They are made from the index: the site need not be built.
    """
    directory = llms or static
    if directory is None or (llms and static):
        raise InvalidArgument("State either --llms or --static", hint="Run the command twice to write both.")
    if static and site_url:
        raise InvalidArgument(
            "--site-url needs --llms", hint="--static writes the links that the book was indexed with."
        )
    if llms and semantic:
        raise InvalidArgument("--semantic needs --static", hint="--llms writes texts only.")
    settings = load_settings()
    store = open_configured_store(settings)
    name = collection or default_collection(settings, store)
    index = store.open(name)
    summary: dict[str, Any] = {"collection": name, "directory": str(directory)}
    if llms:
        folder = f"{site_url.rstrip('/')}/" if site_url else ""
        pages = export_llms(index, name, directory, folder)
        summary |= {"pages": pages}
        text = (
            f"Wrote llms.txt, llms-full.txt, skill.md and {plural(pages, 'page')} of '{name}' to {directory}."
        )
    else:
        with progress_bar("Reading chunks") as progress:
            exported = export_static(index, directory, progress, semantic or "auto", settings.lexical_weight)
        summary |= asdict(exported)
        if exported.unpublished:
            notify(
                f"{plural(exported.unpublished, 'page')} of '{name}' cannot be opened from the results, "
                "because the book was indexed without the address of its site. Index it again with "
                "--site-url URL, or set data-rewrite in the script tag."
            )
        text = (
            f"Wrote {plural(exported.chunks, 'chunk')} of {plural(exported.pages, 'page')} of '{name}' "
            f"to {directory}: {plural(exported.files, 'file')}, {megabytes(exported.bytes)}. "
            f"Search {'by words and by meaning' if exported.semantic else 'by words only'}."
        )
    emit(summary, [text], as_json=as_json)
    return Exit.OK
