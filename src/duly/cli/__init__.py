"""The command line. One file per group of commands; each imports what it needs when it runs.

Answers go to standard output, errors to standard error in one line. Exit codes: 0 all is well, 1 it did not work, 2 it
was asked wrongly (a word, an option, a setting).
"""

from __future__ import annotations

from typing import Any

import click

from duly import __version__
from duly.cli.care import migrate, settings
from duly.cli.doctor import doctor
from duly.cli.items import cancel, items, retry, show
from duly.cli.messages import messages, retry_service
from duly.cli.put import put
from duly.cli.queues import queues
from duly.cli.reports import alerts, alive, late, stuck
from duly.cli.run import up, worker
from duly.cli.schedules import limits, schedules, slots
from duly.cli.serve import serve
from duly.cli.simulate import plan, simulate
from duly.cli.users import keys, users
from duly.errors import ConfigError, DulyError, InputError, KeyConflict


class Refusal(click.ClickException):
    """One of our own errors, in one line."""

    exit_code = 1

    def __init__(self, error: DulyError) -> None:
        super().__init__(" ".join(str(error).split()))


class Misuse(Refusal):
    """It cannot work like that, whatever the state of things."""

    exit_code = 2


class Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyConflict as error:
            raise Refusal(error) from error
        except (ConfigError, InputError) as error:
            raise Misuse(error) from error
        except DulyError as error:
            raise Refusal(error) from error

    def list_commands(self, _: click.Context) -> list[str]:
        return list(self.commands)  # in the order of a day's work, not of the alphabet


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="duly", message="%(prog)s %(version)s")
def main() -> None:
    """What falls due gets done: once, on time, evenly, and in spite of crashes."""


for command in (
    up, worker, serve, retry_service, migrate, put, items, show, retry, cancel, queues, schedules, slots, limits,
    messages, late, stuck, alerts, alive, plan, simulate, users, keys, doctor, settings,
):  # fmt: skip
    main.add_command(command)
