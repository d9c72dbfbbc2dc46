"""Every verb at every door, or with the reason why not; and the table that says so."""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import click
import pytest

from duly import Duly
from duly.cli import main
from duly.client import Client
from duly.facade.jobs import RunningJob
from duly.tasks.task import Task
from duly.verbs.read import Read
from tests.docs.doors import DOORS, NOUNS, OF_APPS, PAGE, No, known, written
from tests.web.test_matrix import DOCUMENT


def test_every_verb_says_by_which_doors_it_is_reached() -> None:
    assert known() <= set(DOORS), "say in tests/docs/doors.py by which doors, or why by none"
    for verb in DOORS:
        noun, _, name = verb.partition(".")
        assert hasattr({"read": Read, **NOUNS, **OF_APPS}[noun], name), f"there is no verb {verb}"


@pytest.mark.parametrize("verb", DOORS)
def test_the_doors_of_a_verb_are_there(verb: str, tmp_path: Path) -> None:
    doors = DOORS[verb]
    if not isinstance(doors.python, No):
        root, _, path = doors.python.partition(".")
        app = Duly(f"sqlite:///{tmp_path}/duly.db")
        assert callable(attrgetter(path)({"app": app, "job": RunningJob, "task": Task, **OF_APPS}[root]))
        app.close()
    if not isinstance(doors.http, No):
        method, _, path = doors.http.partition(" ")
        assert method.lower() in DOCUMENT["paths"][path]
    if not isinstance(doors.client, No):
        assert callable(getattr(Client, doors.client))
    if not isinstance(doors.cli, No):
        command: Any = main
        for word in doors.cli.split():
            command = command.get_command(click.Context(command), word)
            assert command is not None, doors.cli


def test_a_reason_is_a_sentence_for_people() -> None:
    for doors in DOORS.values():
        assert all(len(cell.split()) >= 4 for cell in doors if isinstance(cell, No))


def test_the_table_of_doors_is_as_it_would_be_written_now() -> None:
    assert PAGE.read_text(encoding="utf8") == written(), "python -m tests.docs.doors writes it"


def test_the_reference_names_the_commands_that_take_no_url() -> None:
    def without(command: click.Command, path: str) -> Iterator[str]:
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                if (one := command.get_command(context, name)) is not None:
                    yield from without(one, f"{path} {name}".strip())
        elif all("--url" not in each.opts for each in command.params):
            yield path

    sentence = PAGE.read_text(encoding="utf8").partition("Commands without `--url`: ")[2].partition(".")[0]
    assert sorted(re.findall("`(.+?)`", sentence)) == sorted(without(main, ""))
