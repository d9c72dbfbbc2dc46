"""The page that says what is stable lists every public name, and nothing that there is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import duly
from duly.facade.jobs import RunningJob
from duly.facade.policies import BatchPolicies
from duly.tasks.puttable import Options

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "stability.md").read_text(encoding="utf8")
REFERENCE = (DOCS / "reference.md").read_text(encoding="utf8")


def listed(title: str) -> list[str]:
    """The names in the paragraph with this title."""
    paragraph = PAGE.partition(f"**{title}**")[2].partition("\n\n")[0].partition(": ")[2]
    return re.findall(r"`(\w+)`", paragraph)


def options(title: str) -> list[str]:
    """The names in the first column of the table under this title of the reference."""
    section = REFERENCE.partition(f"\n## {title}\n")[2].partition("\n##")[0]
    return [
        each for line in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for each in re.findall(r"`(\w+)`", line)
    ]


@pytest.mark.parametrize(
    ("title", "known"), [("`@app.task(…)`", BatchPolicies), ("`task.put(…)`, `aput`, `put_many`, `aput_many`", Options)]
)
def test_the_reference_has_every_option(title: str, known: type) -> None:
    assert sorted(options(title)) == sorted(known.__annotations__)


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
