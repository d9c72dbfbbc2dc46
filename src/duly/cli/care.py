"""`duly migrate` and `duly settings`: the house before anybody moves in."""

from __future__ import annotations

from typing import Any

import click

from duly.cli import options


@click.command()
@options.database_url
@options.as_json
def migrate(as_json: bool) -> None:
    """Bring the database up to date. Safe while workers run, and when two do it at once."""
    from duly.cli import words

    with options.opened(makes=True) as app:
        applied = app.migrate(lambda name: None if as_json else click.echo(f"applied {name}"))
    if as_json:
        words.print_json({"applied": applied})
    elif not applied:
        click.echo("nothing to do: the database is up to date")


@click.command(short_help="Show every setting and where it comes from.")
@options.as_json
def settings(as_json: bool) -> None:
    """Show every setting: its value, where that comes from, and what it means."""
    from duly.cli import words

    known = _settings()
    if as_json:
        words.print_json(known)
        return
    from rich.padding import Padding
    from rich.text import Text

    console = words.console()
    for each in known:
        names = " or ".join(name for name in (each["variable"], each["alias"]) if name)
        line = Text(each["name"], style="bold")
        line.append(f" = {each['value']}", style="" if each["source"] == "default" else "green")
        line.append(f"  ({each['source']})", style="dim")
        console.print(line, overflow="fold")
        console.print(Padding(Text(f"{each['doc']} {names}", style="dim"), (0, 0, 0, 4)))


def _settings() -> list[dict[str, Any]]:
    from dataclasses import fields

    from duly.config import Settings, load, sources

    shown, found = load().shown(), sources()
    return [
        {
            "name": each.name,
            "value": shown[each.name],
            "source": found.get(each.name, "default"),
            "variable": f"DULY_{each.name.upper()}",
            "alias": each.metadata["alias"],
            "default": each.default,
            "doc": each.metadata["doc"],
        }
        for each in fields(Settings)
    ]
