"""`duly plan` and `duly simulate`."""

import click


@click.command()
def plan() -> None: ...
@click.command()
def simulate() -> None: ...
