"""The page that says what is stable lists every public name, and nothing that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import duly
from duly.facade.jobs import RunningJob

PAGE = (Path(__file__).parents[2] / "docs" / "stability.md").read_text(encoding="utf8")


def listed(title: str) -> list[str]:
    """The names in the paragraph with this title."""
    paragraph = PAGE.partition(f"**{title}**")[2].partition("\n\n")[0].partition(": ")[2]
    return re.findall(r"`(\w+)`", paragraph)


def test_every_public_name_is_listed() -> None:
    assert listed("Names of `duly`") == sorted(duly.__all__, key=str.lower)


@pytest.mark.parametrize("kind", [duly.Duly, duly.Task, duly.Placed, RunningJob])
def test_every_public_attribute_is_listed_as_stable_or_not(kind: type) -> None:
    app = duly.Duly("sqlite:///unused.db")
    things = (app, app.task(name="ring")(lambda: None), duly.Placed(1, "1-a", True), RunningJob(app.internals, 1))
    thing = next(each for each in things if isinstance(each, kind))
    stable, others = listed(f"Attributes of `{kind.__name__}`"), listed(f"Of `{kind.__name__}`")
    assert (stable, others) == (sorted(stable), sorted(others))
    assert sorted([*stable, *others]) == [name for name in dir(thing) if not name.startswith("_")]
    documented = [name for name in stable if callable(getattr(kind, name, None))]
    assert all(getattr(kind, name).__doc__ for name in documented)
