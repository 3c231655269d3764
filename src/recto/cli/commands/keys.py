"""`recto keys add`, `recto keys list` and `recto keys revoke`."""

from __future__ import annotations

from typing import Any, get_args

import click

from recto.cli import options
from recto.cli.output import echo, echo_json
from recto.cli.runner import Exit, notify
from recto.server.keys import Key, KeyScope, add_key, key_file, read_keys, revoke_key
from recto.settings import load_settings


@click.group()
def keys() -> None:
    """Create, list and revoke API keys of the service.

    Running services notice each change at once.
    """


@keys.command()
@click.argument("name")
@click.option(
    "--scope",
    type=click.Choice(get_args(KeyScope)),
    default="search",
    show_default=True,
    help="What the key is for: searching and reading some collections, or everything.",
)
@options.repeated("--origin", "origins", "ORIGIN", "Accept the key from web pages of this origin.")
@options.repeated("--collection", "collections", "NAME", "Accept the key for this collection.")
@options.value_option("--expires", "DATE", "Last day on which the key is valid: 2027-12-31.", "never")
@options.as_json
def add(
    name: str,
    scope: KeyScope,
    origins: tuple[str, ...],
    collections: tuple[str, ...],
    expires: str | None,
    as_json: bool,
) -> Exit:
    """Create the key NAME and print it; it is not stored, and cannot be shown again."""
    home = load_settings().key_home
    key, text = add_key(home, name, scope, origins, collections, expires or "")
    if as_json:
        echo_json({**key.to_dict(), "key": text})
        return Exit.OK
    notify(f"Created the {scope} key '{name}'. Its digest is in {key_file(home)}.")
    if scope == "search" and not key.origins:
        notify("Web pages of other origins cannot use it: add --origin for a web page.")
    notify("Store the key now, because it cannot be shown again:")
    echo(text)
    return Exit.OK


@keys.command("list")
@options.as_json
def list_keys(as_json: bool) -> Exit:
    """List the keys, without their texts."""
    found = read_keys(load_settings().key_home)
    if as_json:
        echo_json([key.to_dict() for key in found])
    elif not found:
        echo("There are no keys.")
    else:
        echo(*map(_row, found))
    return Exit.OK


@keys.command()
@click.argument("name")
@options.as_json
def revoke(name: str, as_json: bool) -> Exit:
    """Revoke the key NAME: services refuse it from now on."""
    key = revoke_key(load_settings().key_home, name)
    if as_json:
        echo_json(key.to_dict())
    else:
        echo(f"Revoked the key '{name}'.")
    return Exit.OK


def _row(key: Key) -> str:
    facts: dict[str, Any] = {
        "origins": ", ".join(key.origins),
        "collections": ", ".join(key.collections),
        "created": key.created_at,
        "expires": key.expires,
        "revoked": key.revoked_at,
    }
    rest = "; ".join(f"{name} {value}" for name, value in facts.items() if value)
    return f"{key.name}: {key.scope}, {key.state}; {rest}"
