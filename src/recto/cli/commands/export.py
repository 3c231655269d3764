"""`recto export`."""

from __future__ import annotations

from pathlib import Path

import click

from recto._util.text import plural
from recto.cli import options
from recto.cli.commands.collections import open_configured_store
from recto.cli.output import echo, echo_json
from recto.cli.runner import Exit
from recto.search.llms import export_llms
from recto.settings import QUERY_COLLECTION, load_settings


@click.command()
@click.option(
    "--llms",
    "directory",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    required=True,
    help="Write llms.txt, llms-full.txt and each page as Markdown to this directory.",
)
@options.value_option(
    "--site-url",
    "URL",
    "Write pages at their paths below this URL, such as https://example.org/book/.",
    "the host of each page",
)
@options.collection
@options.as_json
def export(directory: Path, site_url: str | None, collection: str | None, as_json: bool) -> Exit:
    """Write the text of a book for language models, to publish it with the site.

    It is made from the index: the site need not be built.
    """
    settings = load_settings()
    name = collection or settings.collection_or(QUERY_COLLECTION)
    folder = f"{site_url.rstrip('/')}/" if site_url else ""
    pages = export_llms(open_configured_store(settings).open(name), name, directory, folder)
    if as_json:
        echo_json({"collection": name, "directory": str(directory), "pages": pages})
    else:
        echo(f"Wrote llms.txt, llms-full.txt and {plural(pages, 'page')} of '{name}' to {directory}.")
    return Exit.OK
