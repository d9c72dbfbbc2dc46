"""`duly doctor`: what is wrong, and what to do about it."""

from __future__ import annotations

import click

from duly.cli import options, words


@click.command(short_help="Say what is wrong and what to do about it.")
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
