"""The command line. One file per group of commands; each imports what it needs when it runs.

Answers go to standard output, errors to standard error in one line. Exit codes: 0 success, 1 failure, 2 wrong usage (an
unknown command, a bad option or setting).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from duly import __version__
from duly.cli.care import doctor, migrate, settings
from duly.cli.items import again, cancel, discard, edit, items, put, retry, show
from duly.cli.jobs import jobs
from duly.cli.queues import limits, queues
from duly.cli.reports import alerts, alive, audit, history, late, now, stuck
from duly.cli.review import acts, review
from duly.cli.run import serve, up, worker
from duly.cli.schedules import schedules, slots
from duly.cli.simulate import simulate
from duly.cli.users import keys, users
from duly.core.errors import BrokenApp, ConfigError, DulyError, InputError, KeyConflict
from duly.plugins import Plugin, claim, installed, plugins


class Refusal(click.ClickException):
    """An error of duly, shown in one line; one in the code of the user's app with the lines of that."""

    exit_code = 1

    def __init__(self, error: DulyError) -> None:
        super().__init__(str(error) if isinstance(error, BrokenApp) else " ".join(str(error).split()))


class Misuse(Refusal):
    """Wrong usage, which fails whatever the database holds."""

    exit_code = 2


class Commands(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (KeyConflict, BrokenApp) as error:
            raise Refusal(error) from error
        except (ConfigError, InputError) as error:
            raise Misuse(error) from error
        except DulyError as error:
            raise Refusal(error) from error

    def list_commands(self, _: click.Context) -> list[str]:
        """The commands of the core in the order in which one needs them, then those of the installed apps."""
        return [*self.commands, *self._plugged()]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        return super().get_command(ctx, name) or self._plugged().get(name)

    def _plugged(self) -> dict[str, click.Command]:
        """The commands of the apps. They are loaded only for a command that is not the core's, as that takes time."""
        owners = {("command", name): "duly" for name in self.commands}
        found = {name: _failing(name, reason) for name, reason in installed().broken.items()}
        for plugin in plugins().values():
            found |= {str(command.name): command for command in _commands_of(plugin, owners)}
        return found


def _commands_of(plugin: Plugin[Any, Any], owners: dict[tuple[str, str], str]) -> Sequence[click.Command]:
    """The commands of an app. If they cannot be used, one command with its name that reports the reason."""
    try:
        commands = plugin.commands()
        for command in commands:
            claim(owners, plugin.name, "command", str(command.name))
        return commands
    except ConfigError as error:
        reason = str(error)
    except ImportError as error:
        remedy = f": pip install '{plugin.needs}'" if plugin.needs else "; install what this app needs"
        reason = f"{plugin.name} is not available: {error}{remedy}"
    except Exception as error:  # whatever it is, the other apps keep their commands
        reason = f"{plugin.name} is not available: {type(error).__name__}: {error}; correct or uninstall its package"
    return [_failing(plugin.name, reason)]


def _failing(name: str, reason: str) -> click.Command:
    def fail() -> None:
        raise ConfigError(reason)

    anything = {"ignore_unknown_options": True, "allow_extra_args": True, "allow_interspersed_args": False}
    return click.Command(name, callback=fail, help=reason, short_help=f"broken: {reason}", context_settings=anything)


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="duly", message="%(prog)s %(version)s")
def main() -> None:
    """What falls due gets done: once, on time, evenly, and in spite of crashes."""


for command in (
    up, worker, serve, migrate, put, items, show, retry, again, cancel, edit, discard, review, acts, jobs, queues,
    schedules, slots, limits, late, stuck, alerts, alive, now, history, audit, simulate, users, keys, doctor, settings,
):  # fmt: skip
    main.add_command(command)
