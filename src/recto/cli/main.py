"""The `recto` command; the module of a subcommand is imported when it is called."""

from __future__ import annotations

from importlib import import_module

import click

from recto import __version__
from recto.cli import make_main

COMMANDS = {
    "Everyday": {
        "index": ("index", "Index a book: a docs site, Markdown files, or a website."),
        "watch": ("index", "Index a book, and again whenever a file changes."),
        "search": ("search", "Search a book."),
        "shell": ("shell", "Search a book interactively, or with queries from a pipe."),
        "explain": ("search", "Explain why a query has these results."),
        "collections": ("collections", "List the collections, or the generations of one."),
        "doctor": ("checks", "Check settings, services and index."),
    },
    "Evaluation": {
        "validate": ("validate", "Measure the results for a suite of questions."),
        "questions": ("questions", "Write what readers ask that each section answers."),
        "suite": ("suite", "Check or extend a suite of questions."),
        "coverage": ("checks", "Find the sections that no search reaches."),
        "gaps": ("checks", "Find what readers ask and the book does not answer."),
        "calibrate": ("checks", "Measure the noise floor of an index."),
    },
    "Service": {
        "serve": ("serve", "Serve the HTTP API and the web UI."),
        "mcp": ("serve", "Serve a book to agents over MCP."),
        "keys": ("serve", "Create, list and revoke API keys of the service."),
        "export": ("serve", "Write a static search, or a book as text for language models."),
    },
    "Maintenance": {
        "backup": ("collections", "Write a collection into one file."),
        "restore": ("collections", "Restore a collection from a file of `recto backup`."),
        "rollback": ("collections", "Restore an earlier index of a collection."),
        "delete": ("collections", "Delete a collection."),
        "promote": ("collections", "Copy an embedded index to a Qdrant server."),
        "parity": ("collections", "Compare an embedded index with the server."),
        "prepare": ("collections", "Create the payload indexes that filters need."),
    },
}
"""The commands by section: the module below `recto.cli.commands`, and the line in `recto --help`."""

_NAMES_ONLY = "Maintenance"  # needed rarely; `recto COMMAND --help` and the reference describe them
_EPILOG = """\b
Examples:
  recto search "What is ROS 2?"                  search the sample book
  recto index ./docs --collection my-book        index your own book
  recto search "my query" --collection my-book   search it

Settings are read from the environment and from .env.
"""


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return [name for section in COMMANDS.values() for name in section]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        for section in COMMANDS.values():
            if cmd_name in section:
                module = import_module(f"recto.cli.commands.{section[cmd_name][0]}")
                command: click.Command = getattr(module, cmd_name)
                return command
        return None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from recto._util.text import nearest

            near = nearest(args[0], self.list_commands(ctx))
            if near is None:
                raise
            message = f"{error.message.rstrip('.')}. Did you mean '{near}'?"
            raise click.UsageError(message, ctx) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, self.list_commands(ctx)))
        for title, section in COMMANDS.items():
            with formatter.section(title):
                if title == _NAMES_ONLY:
                    formatter.write_text(", ".join(section))
                else:
                    formatter.write_dl([(f"{name:{width}}", text) for name, (_, text) in section.items()])


@click.group(cls=_LazyGroup, epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="recto")
def recto() -> None:
    """Index a textbook, search it, and measure how well the search works."""


main = make_main(recto, "recto")
