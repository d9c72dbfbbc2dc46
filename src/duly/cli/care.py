"""`duly migrate`, `duly settings` and `duly doctor`: prepare the database, show the settings, find what is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from duly.cli import options, words
from duly.config import aliased, load, section, sources
from duly.core.errors import ConfigError
from duly.core.section import Section
from duly.core.settings import Settings
from duly.facade.loading import load_app
from duly.plugins import chosen, plugins


@click.command()
@click.argument("spec", metavar="[MODULE:APP]", required=False)
@options.database_url
@options.as_json
def migrate(spec: str | None, as_json: bool) -> None:
    """Bring the database up to date. Safe while workers run, and when two do it at once.

    The tables of the plug-ins on MODULE:APP are migrated too; without it, those of the apps in DULY_APPS, or of all
    apps that `duly up` runs.
    """
    lost: dict[str, str] = {}
    with options.opened(makes=True) as app:
        known = load_app(spec).internals.plugins.values() if spec else chosen(app.settings.apps, lost)
        app.internals.plugins.update((plugin.name, plugin) for plugin in known)
        applied = app.migrate(lambda name: None if as_json else click.echo(f"applied {name}"))
    if as_json:
        words.print_json({"applied": applied})
    elif not applied:
        click.echo("nothing to do: the database is up to date")
    if lost:
        raise ConfigError(f"not migrated: {', '.join(lost)}. {'; '.join(lost.values())}; correct or uninstall it")


@click.command(short_help="Show every setting and where it comes from.")
@options.as_json
def settings(as_json: bool) -> None:
    """Show every setting: its value, where that comes from, and what it means."""
    known = _settings()
    if as_json:
        words.print_json(known)
        return
    from rich.padding import Padding
    from rich.text import Text

    console = words.console()
    group = ""
    for each in known:
        if each["app"] != group:
            group = each["app"]
            console.print(Text(f"\n{group}", style="bold underline"))
        names = " or ".join(name for name in (each["variable"], each["alias"]) if name)
        line = Text(each["name"], style="bold")
        line.append(f" = {each['value']}", style="" if each["source"] == "default" else "green")
        line.append(f"  ({each['source']})", style="dim")
        console.print(line, overflow="fold")
        console.print(Padding(Text(f"{each['doc']} {names}", style="dim"), (0, 0, 0, 4), expand=False))


def _settings() -> list[dict[str, Any]]:
    """The core's settings, then those of each app."""
    wanted = chosen(load().apps, {})
    aliases = {name: variable for plugin in wanted for variable, name in plugin.aliases.items()}
    with aliased(wanted):
        known = [_section("", Settings, aliases)]
    known += [_section(plugin.name, plugin.settings, {}) for plugin in plugins().values()]
    return [each for section in known for each in section]


def _section(app: str, kind: type[Section], aliases: Mapping[str, str]) -> list[dict[str, Any]]:
    shown, found = section(kind).shown(), sources(kind=kind)
    return [
        {
            "name": name,
            "value": shown[name],
            "source": found.get(name, "default"),
            "variable": f"DULY_{name.upper()}",
            "alias": each.metadata["alias"] or aliases.get(name),
            "default": each.default,
            "doc": each.metadata["doc"],
            "app": app,
        }
        for name, each in kind.known().items()
    ]


@click.command(short_help="Report what is wrong and what to do about it.")
@options.side
@options.as_json
@click.pass_context
def doctor(ctx: click.Context, as_json: bool) -> None:
    """Check versions, settings, database, clock and work. Exit code 1 when something is wrong.

    With --url or DULY_URL it is a service that is checked: whether it and its database answer, the key, and the work.
    """
    from duly.cli.checkup import examine, examine_service

    options.quiet()
    client = options.remote()
    findings = list(examine() if client is None else examine_service(client))
    if as_json:
        words.print_json(findings)
    else:
        from rich.table import Table
        from rich.text import Text

        lines = Table.grid(padding=(0, 2, 0, 0))
        lines.add_column(no_wrap=True)
        lines.add_column(no_wrap=True)
        lines.add_column(overflow="fold")
        for each in findings:
            text = Text(each.text)
            if each.advice:
                text.append(f"\n→ {each.advice}", style=words.STYLES[each.level])
            lines.add_row(Text(each.level, style=words.STYLES[each.level]), each.subject, text)
        words.console().print(lines)
    ctx.exit(1 if any(each.level == "bad" for each in findings) else 0)
